// Package cli is the kiln command. A program of one's own that registers ops or
// passes first and then calls Main is a kiln with those built in.
package cli
