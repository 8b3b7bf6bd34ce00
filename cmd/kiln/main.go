// Command kiln compiles, inspects and runs DeepSeek-V4 models.
package main

import (
	"os"

	"github.com/kiln-project/kiln/cmd/kiln/cli"
	"github.com/kiln-project/kiln/codegen/llvm"
)

func main() {
	llvm.MaybeServeWorker(os.Args) // first: a worker is no command
	os.Exit(cli.Main())
}
