package llvm

import (
	"encoding/gob"
	"fmt"
	"os"
	"os/signal"
)

// MaybeServeWorker turns this process into a worker, and does not return, if its
// arguments (os.Args) are those with which a [Compiler] starts one. Otherwise it
// returns at once. It belongs at the very start of main, and of TestMain in the
// packages whose tests compile.
func MaybeServeWorker(args []string) {
	if len(args) > 1 && args[1] == workerArg {
		os.Exit(serve(args[2:]))
	}
}

// serve answers requests until they end, and returns the exit status.
func serve(args []string) int {
	if len(args) != 1 {
		fmt.Fprintf(os.Stderr, "%s takes the path of libLLVM and is not for use by hand\n", workerArg)
		return 2
	}
	// An interrupt from the terminal reaches the whole process group. It is for
	// the parent to say what it means.
	signal.Ignore(os.Interrupt)
	requests, responses := os.NewFile(3, "requests"), os.NewFile(4, "responses")
	dec, enc := gob.NewDecoder(requests), gob.NewEncoder(responses)
	h := hello{Protocol: protocol}
	lib, err := openLibrary(args[0])
	if err != nil {
		h.Err = err.Error()
	} else {
		h.Version = lib.version()
	}
	if enc.Encode(&h) != nil || err != nil {
		return 1
	}
	for {
		var q request
		if err := dec.Decode(&q); err != nil {
			return 0 // the parent closed its end, or is gone
		}
		r := lib.compile(&q)
		// The end of what this job wrote to standard error.
		if _, err := os.Stderr.Write([]byte{0}); err != nil {
			return 1
		}
		if enc.Encode(r) != nil {
			return 1
		}
	}
}
