package emu

import (
	"slices"
	"testing"

	"github.com/kiln-project/kiln/codegen/target"
	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// targetFormats are the formats of the compiler's table, as the emulator has them.
var targetFormats = map[ir.DType]struct {
	format matrixFormat
	value  func(code byte) float32
}{
	ir.BF16:       {format: formatBF16},
	ir.F8E4M3:     {formatFP8, num.FromE4M3},
	ir.F8E4M3FNUZ: {formatFP8, num.FromE4M3FNUZ},
	ir.F4E2M1:     {formatFP4, num.FromE2M1},
}

// The compiler's table of matrix instructions and the emulator's were written apart
// from each other: they agree on every element's place, on formats and on scales.
func TestTargetMatrixTable(t *testing.T) {
	var formats []ir.DType
	for dt := range targetFormats {
		formats = append(formats, dt)
	}
	slices.Sort(formats)
	count := map[string]int{}
	for _, chip := range Chips {
		tg, err := target.Lookup(chip)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range formats {
			for _, b := range formats {
				for _, scaled := range []bool{false, true} {
					if m := tg.MFMA(a, b, scaled); m != nil {
						count[chip]++
						compareMatrixInst(t, chip, m)
					}
				}
			}
		}
	}
	if count["gfx942"] < 2 || count["gfx950"] < 5 {
		t.Errorf("%v instructions were compared", count)
	}
}

func compareMatrixInst(t *testing.T, chip string, m *target.MFMA) {
	t.Helper()
	at := slices.IndexFunc(matrixInsts, func(in matrixInst) bool { return in.op == "v_mfma_"+m.Name })
	if at < 0 {
		t.Errorf("%s: %s is not in the emulator's table", chip, m.Name)
		return
	}
	in := matrixInsts[at]
	if in.chips != nil && !slices.Contains(in.chips, chip) {
		t.Errorf("%s: the emulator has %s for %v", chip, m.Name, in.chips)
	}
	if in.m != target.MatrixTile || in.k != m.K || in.blocks != 1 || in.result != f32 || in.scaled != m.Scaled {
		t.Errorf("%s %s: the emulator has %+v, the compiler %+v", chip, m.Name, in, *m)
	}
	shapes := [2]operandShape{}
	for i, dt := range []ir.DType{m.A, m.B} {
		own, run := []matrixFormat{in.a, in.b}[i], in.run
		want := targetFormats[dt]
		if own == formatSelectable {
			j := slices.IndexFunc(selectable, func(s struct {
				format matrixFormat
				run    int
			}) bool {
				return s.format == want.format
			})
			if j < 0 {
				t.Errorf("%s %s: no format for %s", chip, m.Name, dt)
				return
			}
			own, run = selectable[j].format, selectable[j].run
		}
		if own != want.format {
			t.Errorf("%s %s: operand %d has format %d, the compiler says %s", chip, m.Name, i, own, dt)
		}
		if want.value != nil {
			decode := own.decoder(chip)
			for code := range 1 << own.bits() {
				got := make([]float32, 1)
				decode(got, []uint32{uint32(code)}, []uint32{0}, 0)
				if v := want.value(byte(code)); got[0] != v && (got[0] == got[0] || v == v) {
					t.Errorf("%s %s: code %#x of %s is %v, the compiler has %v", chip, m.Name, code, dt, got[0], v)
				}
			}
		}
		shapes[i] = operandShape{m: in.m, k: in.k, blocks: in.blocks, run: run}
		if shapes[i].perLane() != m.PerLane() {
			t.Errorf("%s %s: a lane holds %d elements of operand %d, the compiler says %d", chip, m.Name, shapes[i].perLane(), i, m.PerLane())
			return
		}
	}
	result := resultShape{m: in.m, blocks: in.blocks, run: 4}
	for lane := range Lanes {
		for e := range m.PerLane() {
			i, k, _ := shapes[0].place(lane, e)
			if row, wantK := m.ElementA(lane, e); row != i || wantK != k {
				t.Errorf("%s %s: element %d of lane %d is A[%d,%d], the compiler says A[%d,%d]", chip, m.Name, e, lane, i, k, row, wantK)
			}
			j, k, _ := shapes[1].place(lane, e)
			if wantK, col := m.ElementB(lane, e); col != j || wantK != k {
				t.Errorf("%s %s: element %d of lane %d is B[%d,%d], the compiler says B[%d,%d]", chip, m.Name, e, lane, k, j, wantK, col)
			}
		}
		for e := range target.ResultRun {
			i, j, _ := result.place(lane, e)
			if row, col := m.ElementD(lane, e); row != i || col != j {
				t.Errorf("%s %s: element %d of lane %d is D[%d,%d], the compiler says D[%d,%d]", chip, m.Name, e, lane, i, j, row, col)
			}
		}
		if m.Scaled {
			compareScale(t, chip, m, in, lane)
		}
	}
}

// compareScale: the lane's scale applies to the 32 k of its row that the compiler says,
// and to no other element.
func compareScale(t *testing.T, chip string, m *target.MFMA, in matrixInst, lane int) {
	t.Helper()
	p := matrixOperand{scale: 0, byte: 0}
	w := &wave{v: make([]Vec, 1)}
	fill(&w.v[0], 127)
	w.v[0][lane] = 128
	rows := make([]row[float32], in.k)
	for k := range rows {
		for i := range in.m {
			rows[k][i] = 1
		}
	}
	scaleRows(&p, w, in.m, rows)
	for k := range rows {
		for i := range in.m {
			want := float32(1)
			if from := m.ScaledK(lane); i == lane%target.MatrixTile && k >= from && k < from+target.ScaleBlock {
				want = 2
			}
			if rows[k][i] != want {
				t.Errorf("%s %s: the scale of lane %d multiplies [%d,%d] by %v, the compiler says %v", chip, m.Name, lane, i, k, rows[k][i], want)
			}
		}
	}
}
