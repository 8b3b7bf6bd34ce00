package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/codegen/plan"
	"github.com/kiln-project/kiln/ir"
)

// Random contents of memory: package plan says which, and its Word is the same in Go.

var randomFill = RuntimeKernel{
	Form: plan.FormRandomFill, Params: randomParams("words", "mask", "add"),
	Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
		count, key, mask, add := ints[0], ints[1], ints[2], ints[3]
		randomWords(k, b[0], count, func(i kernel.V) kernel.V { return k.Add(k.And(mix(k, key, i), mask), add) })
	},
}

var randomIDs = RuntimeKernel{
	Form: plan.FormRandomIDs, Params: randomParams("ids", "columns", "limit"),
	Body: func(k *kernel.K, b []*kernel.Buf, ints []kernel.V) {
		count, key, columns, limit := ints[0], ints[1], ints[2], ints[3]
		randomWords(k, b[0], count, func(i kernel.V) kernel.V {
			first := k.LShr(mix(k, key, k.UDiv(i, columns)), k.Int(1))
			return k.URem(k.Add(first, k.URem(i, columns)), limit)
		})
	},
}

func randomParams(out string, ints ...string) []kernel.Param {
	list := []kernel.Param{{Name: out, Mem: ir.I64, Out: true}, {Name: "count"}, {Name: "key"}}
	for _, name := range ints {
		list = append(list, kernel.Param{Name: name})
	}
	return list
}

// randomWords has each group write its chunk of count words.
func randomWords(k *kernel.K, out *kernel.Buf, count kernel.V, word func(i kernel.V) kernel.V) {
	from := k.Mul(k.Group(), k.Int(plan.RandomChunk))
	k.Lanes(k.Min(k.Int(plan.RandomChunk), k.Sub(count, from)), func(i kernel.V) {
		i = k.Add(i, from)
		out.StoreBits(i, word(i))
	})
}

// mix is plan.Mix.
func mix(k *kernel.K, key, i kernel.V) kernel.V {
	word := func(c uint64) kernel.V { return k.Int(int(c)) }
	z := k.Add(k.Mul(k.Add(i, k.Int(1)), word(plan.MixStep)), key)
	z = k.Mul(k.Xor(z, k.LShr(z, k.Int(30))), word(plan.MixMul1))
	z = k.Mul(k.Xor(z, k.LShr(z, k.Int(27))), word(plan.MixMul2))
	return k.Xor(z, k.LShr(z, k.Int(31)))
}
