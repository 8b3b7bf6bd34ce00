package testcache

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/kiln-project/kiln/codegen"
	"github.com/kiln-project/kiln/codegen/llvm"
)

// counting compiles to the IR itself and counts.
type counting struct {
	llvm.Compiler
	jobs int
	err  error
}

func (c *counting) Compile(_ context.Context, job llvm.Job) (llvm.Result, error) {
	c.jobs++
	return llvm.Result{Output: job.IR, Diags: []llvm.Diag{{Text: job.Name}}}, c.err
}

// What is equal is compiled once; whatever differs is compiled, and so is what failed.
func TestCompiler(t *testing.T) {
	inner := &counting{}
	c := Compiler(inner, &llvm.Toolchain{}, codegen.OpenCache(t.TempDir()))
	job := llvm.Job{Name: "n", IR: []byte("ir"), Triple: "t", CPU: "c", Features: "f", OptPasses: "o"}
	first, err := c.Compile(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Compile(t.Context(), job); err != nil || !reflect.DeepEqual(first, again) || inner.jobs != 1 {
		t.Errorf("again: %+v (%v) after %d jobs, want %+v", again, err, inner.jobs, first)
	}
	v := reflect.ValueOf(&job).Elem()
	for i := range v.NumField() {
		before, changed := inner.jobs, job
		switch f := reflect.ValueOf(&changed).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString(f.String() + "x")
		case reflect.Slice:
			f.SetBytes([]byte("other"))
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int:
			f.SetInt(6)
		}
		if _, err := c.Compile(t.Context(), changed); err != nil || inner.jobs != before+1 {
			t.Errorf("with another %s: %d jobs more, error %v", v.Type().Field(i).Name, inner.jobs-before, err)
		}
	}
	inner.err = errors.New("no")
	job.Name = "fails"
	for range 2 {
		if _, err := c.Compile(t.Context(), job); !errors.Is(err, inner.err) {
			t.Errorf("error %v", err)
		}
	}
}
