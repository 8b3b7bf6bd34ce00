// Command dials opens a connection. A test looks for what that links.
package main

import (
	"net"
	"os"
)

func main() {
	c, err := net.Dial("tcp", os.Args[1])
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		os.Exit(1)
	}
}
