//go:build long

package cli

import "testing"

// All of a bundle.
func TestCheckDeterminismOfAll(t *testing.T) { checkDeterminismOf(t) }
