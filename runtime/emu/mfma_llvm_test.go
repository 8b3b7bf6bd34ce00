package emu

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMatrixTableIsComplete asks LLVM's assembler for every name and size of operands
// that a dense matrix instruction could have: those that it knows are the table.
func TestMatrixTableIsComplete(t *testing.T) {
	tools := toolchain(t)
	mc := filepath.Join(filepath.Dir(tools.ObjDump), "llvm-mc")
	if _, err := exec.LookPath(mc); err != nil {
		t.Skip(err)
	}
	var lines []string
	for _, types := range []struct {
		d, ab      string
		wide, bits int // of an element of D, of A and B
	}{
		{"f32", "f32", 32, 32}, {"f32", "xf32", 32, 32}, {"f32", "tf32", 32, 32}, {"f32", "f16", 32, 16}, {"f32", "bf16", 32, 16}, {"f16", "f16", 16, 16}, {"f64", "f64", 64, 64},
		{"i32", "i8", 32, 8}, {"f32", "i8", 32, 8}, {"f32", "fp8_fp8", 32, 8}, {"f32", "fp8_bf8", 32, 8}, {"f32", "bf8_fp8", 32, 8}, {"f32", "bf8_bf8", 32, 8}, {"f32", "f8f6f4", 32, 8},
	} {
		for _, m := range []int{4, 16, 32} {
			for k := 1; k <= 256; k *= 2 {
				for blocks := 1; blocks <= 16; blocks *= 2 {
					wordsD, words := m*m*blocks*types.wide/Lanes/32, m*k*blocks*types.bits/Lanes/32
					if wordsD < 1 || wordsD > 32 || words > 8 {
						continue
					}
					several := ""
					if blocks > 1 {
						several = fmt.Sprintf("_%db", blocks)
					}
					shape := fmt.Sprintf("%s_%dx%dx%d%s_%s %s, %s, %s, 0", types.d, m, m, k, several, types.ab, registerText("v", 64, wordsD), registerText("v", 0, max(words, 1)), registerText("v", 8, max(words, 1)))
					lines = append(lines, "v_mfma_"+shape, "v_mfma_scale_"+shape+", v100, v101")
				}
			}
		}
	}
	refused := regexp.MustCompile(`(?m)^<stdin>:(\d+):\d+: error:`)
	for _, chip := range Chips {
		var want []string
		for i := range matrixInsts {
			if m := &matrixInsts[i]; slices.Contains(matrixChips(m), chip) {
				want = append(want, m.op)
			}
		}
		cmd := exec.CommandContext(t.Context(), mc, "-triple=amdgcn-amd-amdhsa", "-mcpu="+chip)
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdout, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) { // some lines are refused
			t.Fatalf("llvm-mc: %v", err)
		}
		bad := map[int]bool{}
		for _, m := range refused.FindAllStringSubmatch(stderr.String(), -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			bad[n-1] = true
		}
		var known []string
		for i, line := range lines {
			if bad[i] {
				continue
			}
			known = append(known, strings.Fields(line)[0])
			// The sizes of operands are the table's too.
			if strings.Contains(line, "scale_") {
				line += " op_sel_hi:[0,0,0]"
			}
			if _, err := trySnippet(chip, line); err != nil {
				t.Errorf("%s: %v", chip, err)
			}
		}
		for text := range strings.Lines(string(stdout)) { // aliases print as what they are
			if op := strings.TrimSpace(text); strings.HasPrefix(op, "v_") && !slices.Contains(want, strings.Fields(op)[0]) {
				t.Errorf("%s: LLVM prints %q, which is not in the table", chip, op)
			}
		}
		slices.Sort(want)
		slices.Sort(known)
		if diff := cmp.Diff(want, slices.Compact(known)); diff != "" {
			t.Errorf("%s: the table and LLVM differ (-table +LLVM):\n%s", chip, diff)
		}
	}
}
