package eval

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kiln-project/kiln/ir"
	"github.com/kiln-project/kiln/ir/num"
)

// sampleRef says it in the words of the op table, by repeated choice of the largest
// and in numbers of any size; the numbers of one column are those of package num,
// which has tests of its own.
func sampleRef(row []float64, d Draw) (id, flags int64) {
	id, flags = argmaxRef(row)
	if !(d.Temperature >= 0) || math.IsInf(float64(d.Temperature), 1) || d.TopK < 0 || !(d.TopP >= 0 && d.TopP <= 1) {
		flags |= ir.SampleRange
	}
	if flags != 0 || d.Temperature == 0 {
		return id, flags
	}
	scale := num.WeightScale(d.Temperature)
	weight := func(i int64) *big.Int { return big.NewInt(num.Weight(float32(row[id])-float32(row[i]), scale)) }
	kept := slices.DeleteFunc(largest(row, len(row)), func(i int64) bool { return i < 0 }) // all but -Inf, which weighs nothing
	if k := int(d.TopK); k > 0 && k < len(kept) {
		kept = kept[:k]
	}
	sum := func(ids []int64) *big.Int {
		s := new(big.Int)
		for _, i := range ids {
			s.Add(s, weight(i))
		}
		return s
	}
	if d.TopP > 0 && d.TopP < 1 {
		want := big.NewInt(num.Share(d.TopP, sum(kept).Int64()))
		n := 1
		for sum(kept[:n]).Cmp(want) < 0 {
			n++
		}
		kept = kept[:n]
	}
	slices.Sort(kept)
	u := big.NewInt(num.Draw(d.Seed, uint32(d.Pos), sum(kept).Int64()))
	n := 1
	for sum(kept[:n]).Cmp(u) <= 0 {
		n++
	}
	return kept[n-1], 0
}

// sampleArgs are the operands of op sample.
func sampleArgs(x *Tensor, draws []Draw) []*Tensor {
	b := len(draws)
	args := []*Tensor{x, zeroTensor(ir.F32, b), zeroTensor(ir.I32, b), zeroTensor(ir.F32, b), zeroTensor(ir.I64, b), zeroTensor(ir.I32, b)}
	for i, d := range draws {
		args[1].F[i], args[2].I[i], args[3].F[i], args[4].I[i], args[5].I[i] = d.Temperature, int64(d.TopK), d.TopP, int64(d.Seed), int64(d.Pos)
	}
	return args
}

func sampleProp(t *rapid.T) {
	rows, n := rapid.SampledFrom(extents).Draw(t, "B"), rapid.SampledFrom(extents).Draw(t, "V")
	x := drawTensor(t, rapid.SampledFrom([]ir.DType{ir.F32, ir.BF16}).Draw(t, "dtype"), rows, n)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	kinds := map[string][]float32{"as drawn": nil, "ties": {2, 1, 2, 1.5}, "sound": {0, float32(math.Copysign(0, -1)), -1, 3, -inf}, "bad": {nan, inf, 1, 2, 3}}
	if pick := kinds[rapid.SampledFrom([]string{"as drawn", "ties", "sound", "bad"}).Draw(t, "values")]; pick != nil {
		for i := range x.F {
			x.F[i] = rapid.SampledFrom(pick).Draw(t, "value")
		}
	}
	valid := rapid.IntRange(0, n).Draw(t, "valid")
	columns := valid
	if valid == 0 {
		columns = n
	}
	var draws []Draw
	for range rows {
		draws = append(draws, Draw{
			Temperature: rapid.SampledFrom([]float32{0, 1, 1, 0.7, 30, 0x1p-149, math.MaxFloat32, -1, nan, inf}).Draw(t, "temperature"),
			TopK:        rapid.SampledFrom([]int32{0, 0, 1, 2, 5, math.MaxInt32, -1}).Draw(t, "top-k"),
			TopP:        rapid.SampledFrom([]float32{0, 0, 1, 0.5, 0.9, 0x1p-149, 2, nan}).Draw(t, "top-p"),
			Seed:        rapid.Uint64().Draw(t, "seed"), Pos: rapid.Int32().Draw(t, "pos"),
		})
	}
	got, err := apply(t, "sample", ir.A("valid", valid), sampleArgs(x, draws)...)
	if err != nil {
		t.Fatal(err)
	}
	v := floats(x)
	for row, d := range draws {
		id, flags := sampleRef(v[row*n:][:columns], d)
		if got[0].I[row] != id || got[1].I[row] != flags {
			t.Fatalf("row %d, %+v of %v: id %d, flags %d; want %d, %d", row, d, v[row*n:][:columns], got[0].I[row], got[1].I[row], id, flags)
		}
	}
}

// What is drawn at many places of a sequence is spread as softmax says, by Pearson's
// chi-square test: the statistic is below the point that one in 10^6 samples of a
// right generator exceeds (Wilson and Hilferty's approximation).
func TestSampleIsSoftmax(t *testing.T) {
	const draws, tokens = 20000, 40
	r := rand.New(rand.NewPCG(4, 2))
	row := make([]float32, tokens)
	for i := range row {
		row[i] = float32(r.NormFloat64())
	}
	row[7], row[9] = float32(math.Inf(-1)), row[8] // one that is never drawn, and a tie
	for name, d := range map[string]Draw{
		"temperature 1":              {Temperature: 1},
		"temperature 0.7, top-k 5":   {Temperature: 0.7, TopK: 5},
		"top-p 0.9":                  {Temperature: 1, TopP: 0.9},
		"temperature 2, both":        {Temperature: 2, TopK: 20, TopP: 0.5},
		"another seed, top-p of one": {Temperature: 1, TopP: 1, Seed: 1<<63 + 5},
	} {
		want := softmaxOf(row, d)
		count := make([]int, tokens)
		for pos := range draws {
			d.Pos = int32(pos)
			id, flags := d.Choose(row)
			if flags != 0 {
				t.Fatalf("%s: flags %d", name, flags)
			}
			count[id]++
		}
		chi2, freedom := 0.0, -1.0
		for i, p := range want {
			if p == 0 {
				if count[i] > 0 {
					t.Errorf("%s: token %d is drawn %d times", name, i, count[i])
				}
				continue
			}
			e := p * draws
			chi2 += (float64(count[i]) - e) * (float64(count[i]) - e) / e
			freedom++
		}
		const z = 4.75 // of the normal distribution, 10^-6 above it
		if most := freedom * math.Pow(1-2/(9*freedom)+z*math.Sqrt(2/(9*freedom)), 3); freedom < 3 || chi2 > most {
			t.Errorf("%s: chi-square is %.1f with %v degrees of freedom, want at most %.1f", name, chi2, freedom, most)
		}
	}
}

// softmaxOf is the distribution in f64, renormalised over what top-k and top-p keep.
func softmaxOf(row []float32, d Draw) []float64 {
	v := make([]float64, len(row))
	for i, x := range row {
		v[i] = float64(x)
	}
	p := make([]float64, len(row))
	order := slices.DeleteFunc(largest(v, len(v)), func(i int64) bool { return i < 0 })
	if d.TopK > 0 {
		order = order[:d.TopK]
	}
	total := 0.0
	for _, i := range order {
		p[i] = math.Exp((v[i] - v[order[0]]) / float64(d.Temperature))
		total += p[i]
	}
	sum, kept := 0.0, total
	for n, i := range order {
		if sum += p[i]; d.TopP > 0 && sum >= float64(d.TopP)*total {
			kept = sum
			for _, j := range order[n+1:] {
				p[j] = 0
			}
			break
		}
	}
	for i := range p {
		p[i] /= kept
	}
	return p
}
