package drivertest

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed layout/*.txt
var layoutFiles embed.FS

// LayoutVersions are the versions of HIP whose headers are known.
var LayoutVersions = []string{"5.2.3", "5.7.1", "6.2.2"}

// Layout is what the headers of a version say: "sizeof T", "offset T.F", "enum N".
type Layout map[string]int

// ParseLayout reads the output of layout/layout.c.
func ParseLayout(text string) (Layout, error) {
	l := Layout{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("layout line %q: want WHAT NAME NUMBER", line)
		}
		n, err := strconv.Atoi(line[at+1:])
		if err != nil {
			return nil, fmt.Errorf("layout line %q: %w", line, err)
		}
		l[line[:at]] = n
	}
	return l, nil
}

// LayoutOf is what is known about a version.
func LayoutOf(version string) (Layout, error) {
	text, err := layoutFiles.ReadFile("layout/hip-" + version + ".txt")
	if err != nil {
		return nil, err
	}
	return ParseLayout(string(text))
}
