package kernels

import (
	"github.com/kiln-project/kiln/codegen/kernel"
	"github.com/kiln-project/kiln/ir"
)

// gemmPlace is a place along K: a piece, and which of its stages.
type gemmPlace struct{ piece, sub *kernel.Var }

func (e *gemm) place() gemmPlace { return gemmPlace{e.Var(e.Int(0)), e.Var(e.Int(0))} }

// next moves a place on by a stage.
func (e *gemm) next(p gemmPlace) {
	piece := e.nextPiece(p.piece.Get())
	if e.per == 1 {
		p.piece.Set(piece)
		return
	}
	sub := e.Add(p.sub.Get(), e.Int(1))
	end := e.Cmp(kernel.EQ, sub, e.Int(e.per))
	p.piece.Set(e.Select(end, piece, p.piece.Get()))
	p.sub.Set(e.Select(end, e.Int(0), sub))
}

// nextPiece is the piece behind one: the wave's next, or the next wave's first.
func (e *gemm) nextPiece(piece kernel.V) kernel.V {
	if e.twoWaves { // the other wave's, or behind that the first wave's next
		next := e.Add(piece, e.Int(e.unit.waves-1))
		over := e.Cmp(kernel.GE, next, e.Int(e.chunks))
		next = e.Select(over, e.Add(e.And(piece, e.Int(e.unit.waves-1)), e.Int(1)), next)
		return e.Select(e.Cmp(kernel.EQ, e.And(piece, e.Int(1)), e.Int(0)), e.Add(piece, e.Int(1)), next)
	}
	next := e.Add(piece, e.Int(e.unit.waves))
	over := e.Cmp(kernel.GE, next, e.Int(e.chunks))
	return e.Select(over, e.Add(e.And(piece, e.Int(e.unit.waves-1)), e.Int(1)), next)
}

// there is a piece, or the last if there is no such.
func (e *gemm) there(piece kernel.V) kernel.V {
	return e.Select(e.Cmp(kernel.LT, piece, e.Int(e.chunks)), piece, e.Int(e.chunks-1))
}

// round moves an offset to the next stage.
func (e *gemm) round(x *kernel.Var) {
	at := e.Add(x.Get(), e.Int(e.stage))
	x.Set(e.Select(e.Cmp(kernel.EQ, at, e.Int(e.stages*e.stage)), e.Int(0), at))
}

// gemmLoop is what a warp has from one stage to the next.
type gemmLoop struct {
	in, at   gemmPlace   // of the copies, and of what is multiplied
	to, from *kernel.Var // their stages, bytes
	// The operands that were read already: all of w for one vector of x, and the first x.
	w [][2]*kernel.VecVar
	x []*kernel.VecVar
	// Of warps together, all of w as bf16, by vector of x.
	held [][2]*kernel.VecVar
}

// sumPieces sums all pieces.
func (e *gemm) sumPieces() {
	l := &gemmLoop{in: e.place(), at: e.place(), to: e.Var(e.Int(0)), from: e.Var(e.Int(0))}
	for range e.stages - 1 {
		e.start(l.in, l.to)
	}
	e.WaitCopies(e.stages - 2)
	if e.together {
		e.FenceForMatrices()
		e.Barrier()
		for _, w := range e.operandsOf(e.Int(0)) {
			l.held = append(l.held, [2]*kernel.VecVar{e.VecVar(w[0]), e.VecVar(w[1])})
		}
	} else {
		e.Barrier()
		for m := range e.units[0] {
			w := e.loadW(e.Int(0), 0, m)
			l.w = append(l.w, [2]*kernel.VecVar{e.VecVar(w[0]), e.VecVar(w[1])})
		}
		for n := range gemmAhead {
			l.x = append(l.x, e.VecVar(e.loadX(e.Int(0), 0, n)))
		}
	}
	if e.w != ir.BF16 {
		piece := l.at.piece.Get()
		e.scale, e.nextScale = e.Var(e.scaleAt(piece)), e.Var(e.scaleAt(e.there(e.nextPiece(piece))))
	}
	n := 1 // stages at a time
	if e.together {
		n = e.per
	}
	e.For(e.Int(0), e.Int(e.steps), n, func(step kernel.V) {
		more := e.Cmp(kernel.LT, e.Add(step, e.Int(n)), e.Int(e.steps))
		if e.together {
			e.multiplyTogether(l, more)
		} else {
			e.multiplyStage(l, more)
		}
		for range n - 1 {
			e.next(l.at)
		}
		e.endOfStage(l.at, e.Add(step, e.Int(n-1)))
	})
	e.WaitCopies(0)
}

// multiplyStage multiplies what is in a stage: columns of units along x, each with all of
// the warp's rows of w, and between them what is copied and read for later. more has the
// first operands of the next stage be read.
func (e *gemm) multiplyStage(l *gemmLoop, more kernel.V) {
	stage := l.from.Get()
	w, x := make([][2]kernel.Vec, len(l.w)), make([]kernel.Vec, len(l.x))
	for m, v := range l.w {
		w[m] = [2]kernel.Vec{v[0].Get(), v[1].Get()}
	}
	for n, v := range l.x {
		x[n] = v.Get()
	}
	var nextStage kernel.V
	wait := func(groups int) {
		e.WaitCopies(groups)
		e.Barrier()
		e.round(l.from)
		nextStage = e.Select(more, l.from.Get(), stage)
	}
	columns := e.deep * e.vectors * e.units[1]
	// Nobody reads the stage before this one any more. Its copies lie between all columns,
	// so that they do not keep the loads waiting.
	spread := columns
	if e.late {
		spread -= gemmAhead
	} else {
		wait(e.stages - 3)
	}
	copies, copied := e.copies(l.in, l.to.Get()), 0
	e.next(l.in)
	e.round(l.to)
	for i := range e.deep * e.vectors {
		last := i == e.deep*e.vectors-1
		from := e.units[1] / 2 // the column from which on the next rows of w are read
		if e.late && last {
			from = e.units[1] - gemmAhead
		}
		next := func() (kernel.V, int) { // where what is read ahead comes from
			if last {
				return nextStage, 0
			}
			return stage, i + 1
		}
		var operands [][]kernel.Vec
		for _, rows := range w {
			operands = append(operands, e.asOperand(rows))
		}
		var nextW [][2]kernel.Vec
		for n := range e.units[1] {
			column := i*e.units[1] + n
			if e.late && column == spread {
				e.CommitCopies()
				wait(e.stages - 2)
			}
			for column < spread && copied < len(copies)*(column+1)/spread {
				copies[copied]()
				copied++
			}
			if n >= from {
				for len(nextW) < (n-from+1)*e.units[0]/(e.units[1]-from) {
					stage, vector := next()
					nextW = append(nextW, e.loadW(stage, vector, len(nextW)))
				}
			}
			if ahead := n + gemmAhead; ahead < e.units[1] {
				x = append(x, e.loadX(stage, i, ahead))
			} else {
				stage, vector := next()
				x = append(x, e.loadX(stage, vector, ahead-e.units[1]))
			}
			e.multiplyColumn(operands, x[n], n)
		}
		w, x = nextW, x[e.units[1]:]
	}
	if !e.late {
		e.CommitCopies()
	}
	for m, v := range w {
		l.w[m][0].Set(v[0])
		l.w[m][1].Set(v[1])
	}
	for n, v := range x {
		l.x[n].Set(v)
	}
}

// multiplyColumn adds the products of all rows of w that the warp has and of unit n along
// x, for the k of a vector.
func (e *gemm) multiplyColumn(w [][]kernel.Vec, x kernel.Vec, n int) {
	for i := 0; i < x.Len(); i += 2 {
		for m, rows := range w {
			a := e.MakeVec(e.At(rows[0], i), e.At(rows[1], i), e.At(rows[0], i+1), e.At(rows[1], i+1))
			e.part[m][n].Set(e.WarpMMA(e.unit.mma, a, e.Part(x, i, 2), e.part[m][n].Get()))
		}
	}
}

// endOfStage moves on. Behind a piece it scales what needs it, and behind a wave's last
// piece, but the last of all, adds the wave's sums to the totals.
func (e *gemm) endOfStage(at gemmPlace, step kernel.V) {
	piece := at.piece.Get()
	end := e.Cmp(kernel.EQ, at.sub.Get(), e.Int(e.per-1))
	if e.scale != nil {
		e.If(end, func() {
			e.addScaled()
			e.scale.Set(e.nextScale.Get())
			e.nextScale.Set(e.scaleAt(e.there(e.nextPiece(e.nextPiece(piece)))))
		})
	}
	over := e.And(e.Cmp(kernel.GE, e.Add(piece, e.Int(e.unit.waves)), e.Int(e.chunks)), e.Cmp(kernel.LT, step, e.Int(e.steps-1)))
	e.If(e.And(end, over), func() { e.addSums(e.Cmp(kernel.EQ, e.And(piece, e.Int(e.unit.waves-1)), e.Int(0))) })
	e.next(at)
}
