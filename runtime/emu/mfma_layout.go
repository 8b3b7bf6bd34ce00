package emu

// Where the elements of matrices are in a wave's registers. Sources: for CDNA3 the
// answers of AMD's matrix instruction calculator; CDNA4's instructions of 16-bit and
// 8-bit operands are taken to go on in the same way, which other compilers assume.

// operandShape is the place of A[i,k] (and with j for i, of B[k,j]) of each block.
// The lanes of a wave are, from the low end, i, block and a group of k.
type operandShape struct {
	m, k, blocks int
	run          int // consecutive k of a lane; 0: all
}

// groups is the number of lanes that share a row's k.
func (s operandShape) groups() int { return Lanes / (s.m * s.blocks) }

// perLane is the number of elements that a lane holds.
func (s operandShape) perLane() int { return s.k / s.groups() }

// place is the matrix element that is element e of a lane.
func (s operandShape) place(lane, e int) (i, k, block int) {
	run := s.run
	if run == 0 {
		run = s.perLane()
	}
	group := lane / (s.m * s.blocks)
	return lane % s.m, run*group + e%run + s.groups()*run*(e/run), lane / s.m % s.blocks
}

// move takes an element of n lanes that follow each other to a row: of block and k.
type move struct {
	row, col    uint8
	lane, n     uint8
	word, shift uint8
	split       bool // the element goes on in the next word
}

// moves lists all of an operand whose elements have a number of bits, with a lane
// pattern (blgp).
func (s operandShape) moves(bits, pattern int) []move {
	n := s.m
	if pattern != 0 { // patterns move lanes by sixteens
		n = min(n, 16)
	}
	var list []move
	for lane := 0; lane < Lanes; lane += n {
		for e := range s.perLane() {
			i, k, block := s.place(lane, e)
			bit := e * bits
			list = append(list, move{
				row: uint8(block*s.k + k), col: uint8(i), lane: uint8(lanePatterns[pattern](lane)), n: uint8(n),
				word: uint8(bit / 32), shift: uint8(bit % 32), split: bits < 32 && bit%32+bits > 32,
			})
		}
	}
	return list
}

// lanePatterns are the values of blgp: which lane of B's registers stands in for a
// lane (CDNA3 ISA document, "B-matrix lane group pattern").
var lanePatterns = [8]func(lane int) int{
	func(l int) int { return l },
	func(l int) int { return l % 32 },
	func(l int) int { return l%32 + 32 },
	func(l int) int { return (l + 16) % 64 },
	func(l int) int { return l % 16 },
	func(l int) int { return l%16 + 16 },
	func(l int) int { return l%16 + 32 },
	func(l int) int { return l%16 + 48 },
}

// resultShape is the place of C[i,j] and D[i,j] of each block. Blocks of 4 by 4 are
// in lanes of their own; larger ones follow each other in the registers.
type resultShape struct {
	m, blocks int
	run       int // consecutive i of a lane
}

// place is the matrix element that is element e (a register, or a pair) of a lane.
func (s resultShape) place(lane, e int) (i, j, block int) {
	laneBlocks, perBlock := 1, s.m*s.m/Lanes
	if s.m == 4 {
		laneBlocks, perBlock = s.blocks, s.m*s.m*s.blocks/Lanes
	}
	groups := Lanes / (s.m * laneBlocks)
	group := lane / (s.m * laneBlocks)
	block = e/perBlock + lane/s.m%laneBlocks
	e %= perBlock
	return s.run*group + e%s.run + groups*s.run*(e/s.run), lane % s.m, block
}

// resultRow is where a row of C and D is: in one element, in lanes that follow each
// other.
type resultRow struct{ element, lane uint8 }

// rows lists the rows, by block and i.
func (s resultShape) rows() []resultRow {
	list := make([]resultRow, s.blocks*s.m)
	for e := range s.m * s.m * s.blocks / Lanes {
		for lane := 0; lane < Lanes; lane += s.m {
			i, _, block := s.place(lane, e)
			list[block*s.m+i] = resultRow{uint8(e), uint8(lane)}
		}
	}
	return list
}
