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

// Processors is how many processors products of few rows are cut up for.
var Processors = &processors
