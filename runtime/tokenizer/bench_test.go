package tokenizer

import (
	"bytes"
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// goSource gives n bytes of Go source, file after file in the order of their paths: from the standard library, or from
// this repository, repeated as needed, if that is not installed.
func goSource(tb testing.TB, n int) string {
	tb.Helper()
	for _, root := range []string{filepath.Join(build.Default.GOROOT, "src"), "../.."} {
		var buf bytes.Buffer
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			buf.Write(data)
			if buf.Len() >= n {
				return filepath.SkipAll
			}
			return nil
		})
		if err != nil || buf.Len() == 0 {
			continue
		}
		text := strings.Repeat(buf.String(), n/buf.Len()+1)
		return strings.ToValidUTF8(text[:n], " ")
	}
	tb.Fatal("no Go source found")
	return ""
}

// benchmarkEncode starts every round with an empty word cache, as the first call in a program does.
func benchmarkEncode(b *testing.B, file, text string) {
	tok := mustLoad(b, file)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		tok.encoders = sync.Pool{New: tok.encoders.New}
		tok.Encode(text)
	}
}

func BenchmarkEncode1MB(b *testing.B) {
	text := goSource(b, 1_000_000)
	b.Run("tiny", func(b *testing.B) { benchmarkEncode(b, tinyFile, text) })
	b.Run("dsv4-style", func(b *testing.B) { benchmarkEncode(b, styledFile, text) })
}

// BenchmarkSplitRegexp1MB measures patterns without a hand-written matcher, here one that has one.
func BenchmarkSplitRegexp1MB(b *testing.B) {
	text := goSource(b, 1_000_000)
	re, err := compilePattern(patternDeepSeek)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		regexpSplitter(re)(text, func(string) {})
	}
}

// BenchmarkEncodeWord1MB is the worst case for the merge queue: one word of a million letters, none of it cached.
func BenchmarkEncodeWord1MB(b *testing.B) {
	benchmarkEncode(b, styledFile, strings.Repeat("abcdefghijklmnopqrstuvwxyz", 1_000_000/26))
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		mustLoad(b, styledFile)
	}
}
