// Command custompass is kiln with two passes more: the whole command, with every
// flag it has, in a module of its own.
package main

import (
	"fmt"
	"os"

	"example.com/custompass/mypasses"
	"github.com/kiln-project/kiln/cmd/kiln/cli"
)

func main() {
	if err := mypasses.Register(); err != nil {
		fmt.Fprintln(os.Stderr, "custompass:", err)
		os.Exit(1)
	}
	os.Exit(cli.Main())
}
