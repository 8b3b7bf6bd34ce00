package view

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// foldAlike finds groups that read the same in every column but for the number of
// their layer.
func foldAlike(t *table, names []string, groups []groupData, columns [][][]line) {
	f := &folder{t: t, names: names, groups: groups}
	for _, cells := range columns {
		f.columns = append(f.columns, survey(cells))
	}
	first := map[string]int{}
	for i, g := range groups {
		family, layer, ok := layerOf(g.Name)
		if !ok {
			continue
		}
		var b strings.Builder
		b.WriteString(family)
		for c, cells := range columns {
			b.WriteByte('\n')
			f.cell(&b, f.columns[c], cells[i], i, family, layer)
		}
		if j, ok := first[b.String()]; ok {
			groups[i].Like = j
		} else {
			first[b.String()] = i
		}
	}
}

// layerOf takes a group's name apart: layers.12.
func layerOf(name string) (family string, layer int, ok bool) {
	family, number, found := strings.Cut(name, ".")
	layer, err := strconv.Atoi(number)
	return family, layer, found && err == nil
}

type folder struct {
	t       *table
	names   []string // of values
	groups  []groupData
	columns []*usage
}

// usage says where the values of a column come from and who uses them.
type usage struct {
	home   map[int][2]int // group, and which value of the group
	shared map[int]bool   // used by more than one other group
}

func survey(cells [][]line) *usage {
	u := &usage{home: map[int][2]int{}, shared: map[int]bool{}}
	users := map[int]int{}
	for g, cell := range cells {
		n := 0
		for _, x := range cell {
			if x[0] == opLine {
				for _, id := range x[2].([]int) {
					u.home[id] = [2]int{g, n}
					n++
				}
			}
		}
	}
	for g, cell := range cells {
		for _, x := range cell {
			if x[0] != opLine {
				continue
			}
			for _, id := range x[4].([]int) {
				home, ok := u.home[id]
				if !ok || home[0] == g {
					continue
				}
				if other, used := users[id]; used && other != g {
					u.shared[id] = true
				}
				users[id] = g
			}
		}
	}
	return u
}

// cell writes a cell such that alike layers write alike. A value of the layer is
// which one it is; one of another layer is how far away it is, unless many layers
// use it.
func (f *folder) cell(b *strings.Builder, u *usage, cell []line, group int, family string, layer int) {
	text := func(i any) {
		fmt.Fprintf(b, " %q", numbersRelative(f.t.strings[i.(int)], family, layer))
	}
	value := func(id int) {
		home, ok := u.home[id]
		var other string
		var far int
		var is bool
		if ok {
			other, far, is = layerOf(f.groups[home[0]].Name)
		}
		switch {
		case f.names[id] != "":
			fmt.Fprintf(b, " %q", numbersRelative(f.names[id], family, layer))
		case !ok:
			b.WriteString(" gone")
		case home[0] == group:
			fmt.Fprintf(b, " own%d", home[1])
		case is && other == family && !u.shared[id]:
			fmt.Fprintf(b, " layer%+d", far-layer)
		default:
			fmt.Fprintf(b, " #%d", id)
		}
	}
	for _, x := range cell {
		fmt.Fprintf(b, "%v", x[0])
		switch x[0] {
		case declLine:
			text(x[1])
			value(x[2].(int))
			text(x[3])
			fmt.Fprint(b, x[4])
		case opLine, goneLine:
			text(x[3])
			for _, id := range x[4].([]int) {
				value(id)
			}
			text(x[5])
			text(x[6])
			text(x[7])
			fmt.Fprint(b, x[8])
		case outLine:
			text(x[1])
			value(x[2].(int))
		case remarkLine:
			for _, i := range x[1:5] { // which name places in any layer and any line
				fmt.Fprintf(b, " %q", filePlace.ReplaceAllString(layerNumber.ReplaceAllString(f.t.strings[i.(int)], "$1.#"), ":#"))
			}
		}
		b.WriteByte(';')
	}
}

// layerNumber matches the number in layers.12.
var layerNumber = regexp.MustCompile(`\b([a-z]+)\.(\d+)\b`)

// filePlace matches line and column of a .kir file.
var filePlace = regexp.MustCompile(`:\d+:\d+\b`)

// numbersRelative writes the numbers of layers next to this one as distances.
func numbersRelative(s, family string, layer int) string {
	if !strings.Contains(s, family+".") {
		return s
	}
	return layerNumber.ReplaceAllStringFunc(s, func(m string) string {
		f, n, ok := layerOf(m)
		if !ok || f != family || n < layer-1 || n > layer+1 {
			return m
		}
		return fmt.Sprintf("%s.%+d", f, n-layer)
	})
}
