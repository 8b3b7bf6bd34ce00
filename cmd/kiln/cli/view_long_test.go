//go:build long

package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The page of the largest model is small enough to send and quick to open.
func TestViewPro(t *testing.T) {
	needGPU(t)
	out := filepath.Join(t.TempDir(), "page.html")
	kiln(t, "view", "--model", proConfig, "--entry", "decode", "--target", "gfx950", "--bind", "B=64", "--cache-dir", t.TempDir(), "-o", out).ok(t)
	p, _, text := readPage(t, out)
	if len(text) >= 30e6 {
		t.Errorf("the page has %d bytes, want less than 30 MB", len(text))
	}
	folded := 0
	for _, g := range p.Groups {
		if g.Like >= 0 {
			folded++
		}
	}
	if len(p.Groups) < 61 || folded < 50 {
		t.Errorf("%d of %d groups read like another, want most of the 61 layers", folded, len(p.Groups))
	}
	t.Logf("%d bytes, %d of %d groups like another, %d launches, %d kernels", len(text), folded, len(p.Groups), len(p.Plan.Launches), len(p.Plan.Kernels))

	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium to open the page with")
	}
	// The last script runs when all is laid out, and then makes room for the result.
	const probe = `<script>document.body.getBoundingClientRect();
document.body.textContent = "value " + document.querySelectorAll(".picked").length + ", rows " + groupRows.length + ", ms " + Math.round(performance.now());</script>`
	probed := filepath.Join(t.TempDir(), "probe.html")
	if err := os.WriteFile(probed, []byte(text+probe), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+probed+"#value=@layers.12.attn.wq_a")
	dom, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(dom), "<body>")
	body, _, _ = strings.Cut(body, "</body>")
	t.Log("opened: " + body)
	if !strings.HasPrefix(body, "value ") || strings.HasPrefix(body, "value 0,") {
		t.Errorf("the page does not follow the value that its address names: %.200q", body)
	}
}
