//go:build !unix

package cli

import "os"

// terminalColumns is the width that every terminal has: its own is not known.
func terminalColumns(*os.File) int { return 80 }
