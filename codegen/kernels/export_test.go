package kernels

// The heights of tiles, for tests of what happens around them.
const (
	TileM       = tileM
	TileN       = tileN
	ScoreChunk  = scoreChunk
	HCBlock     = hcBlock
	MaxStreams  = maxStreams
	ArgmaxTiles = argmaxTiles
	ShardWidth  = shardWidth
)

// UseGemm has tile number i of those of many rows multiply all that it can; undo has it as
// it was.
func UseGemm(i int) (undo func()) {
	tiles, old := gemmTiles, matrixTileTime
	t := tiles[i]
	t.bf16, t.fp8 = gemmTime{1, 1}, gemmTime{1, 1}
	gemmTiles, matrixTileTime = []gemmTile{t}, map[bool]gemmTime{true: {1e9, 1e9}, false: {1e9, 1e9}}
	return func() { gemmTiles, matrixTileTime = tiles, old }
}

// GemmTiles is how many such tiles there are.
func GemmTiles() int { return len(gemmTiles) }

// GemmTarget is a target that has tile number i.
func GemmTarget(i int) string {
	if gemmTiles[i].together {
		return "sm_90a"
	}
	return "sm_90"
}

// Processors is how many processors products of few rows are cut up for.
var Processors = &processors
