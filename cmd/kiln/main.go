// Command kiln compiles, inspects and runs DeepSeek-V4 models.
package main

import (
	"os"

	"github.com/kiln-project/kiln/cmd/kiln/cli"
)

func main() {
	os.Exit(cli.Main())
}
