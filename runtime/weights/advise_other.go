//go:build !linux

package weights

type advice int

const (
	willNeed advice = iota
	dontNeed
	sequential
)

const pageSize = 1

// advise does nothing: only Linux drops pages of a shared mapping as is meant here.
func (m mapping) advise([]byte, advice) {}
