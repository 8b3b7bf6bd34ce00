package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
)

// Where there is no terminal: nothing of what is quick, then a line each two
// seconds, and none once there is nothing to tell.
func TestProgressLines(t *testing.T) {
	for _, json := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			set := pflag.NewFlagSet("compile", pflag.ContinueOnError)
			f := newFlags("compile", set)
			if json {
				if err := set.Parse([]string{"--json"}); err != nil {
					t.Fatal(err)
				}
			}
			p := newProgress(&env{stderr: &b, log: newLogs(&b, levelDefault, false)}, f)
			say := func(after time.Duration, tell func()) {
				time.Sleep(after)
				synctest.Wait()
				tell()
			}
			say(0, func() { p.say("loading %s", "x") })
			say(time.Second, func() { p.note("device: %s", "d") })
			say(0, func() { p.count("compiling kernels", 1, 9) })
			say(time.Second, func() { p.count("compiling kernels", 2, 9) }) // the first second line is due before
			say(time.Second, func() { p.count("compiling kernels", 3, 9) })
			say(2*time.Second, p.clear)
			say(time.Minute, p.close)
			time.Sleep(time.Minute)
			want := "device: d\ncompiling kernels 1/9 (2 s)\ncompiling kernels 3/9 (4 s)\n"
			if json {
				want = ""
			}
			if b.String() != want {
				t.Errorf("json %v: standard error %q, want %q", json, b.String(), want)
			}
		})
	}
}

// A slow step with no news is not silent.
func TestProgressWithoutNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProgress(&env{stderr: &b, log: newLogs(&b, levelDefault, false)}, newFlags("run", pflag.NewFlagSet("run", pflag.ContinueOnError)))
		p.say("binding weights")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		p.close()
		if n := strings.Count(b.String(), "binding weights ("); n != 10 {
			t.Errorf("%d lines in 20 s, want 10:\n%s", n, b.String())
		}
	})
}

func TestProgressOnTerminal(t *testing.T) {
	var b bytes.Buffer
	p := &progress{log: newLogs(&b, levelDefault, false), w: &b, columns: func() int { return 24 }}
	p.say("loading %s", "x")
	p.count("k", 1, 2)
	p.say("a line that is longer than the terminal")
	p.note("device: %s", "d")
	p.say("done")
	p.close()
	p.clear()
	want := "\rloading x" + "\rk [=======>       ] 1/2" + "\ra line that is longer t" + "\r" + strings.Repeat(" ", 23) + "\rdevice: d\n" + "\rdone\r    \r"
	if b.String() != want {
		t.Errorf("progress on a terminal:\n%q, want\n%q", b.String(), want)
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a colour or another escape")
	}
}

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		done, total, columns int
		want                 string
	}{
		{0, 40, 80, "kernels [>" + strings.Repeat(" ", 39) + "] 0/40"},
		{20, 40, 200, "kernels [" + strings.Repeat("=", 20) + ">" + strings.Repeat(" ", 19) + "] 20/40"},
		{40, 40, 80, "kernels [" + strings.Repeat("=", 40) + "] 40/40"},
		{3, 4, 24, "kernels [======>  ] 3/4"},
		{3, 4, 22, "kernels 3/4"}, // no room
		{3, 4, 0, "kernels 3/4"},  // no terminal
		{0, 0, 80, "kernels [>" + strings.Repeat(" ", 39) + "] 0/0"},
	} {
		if got := bar("kernels", tc.done, tc.total, tc.columns); got != tc.want {
			t.Errorf("bar of %d/%d in %d columns: %q, want %q", tc.done, tc.total, tc.columns, got, tc.want)
		}
	}
}

// Bytes come with their rate and the time left; a terminal is not written to for each
// of many.
func TestProgressTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := &progress{w: &b, log: newLogs(&b, levelDefault, false), columns: func() int { return 80 }}
		tell := p.transfer("loading weights")
		for _, step := range []struct {
			after time.Duration
			done  int64
		}{{0, 0}, {time.Second, 2e9}, {time.Millisecond, 3e9}, {999 * time.Millisecond, 4e9}, {2 * time.Minute, 5e9}, {0, 8e9}} {
			time.Sleep(step.after)
			tell(step.done, 8e9)
		}
		p.close()
		var got []string
		for line := range strings.SplitSeq(b.String(), "\r") {
			if line = strings.TrimRight(line, " "); line != "" {
				got = append(got, strings.TrimPrefix(line, "loading weights"))
			}
		}
		want := []string{"", ": 0.00 of 8.00 GB", ": 2.00 of 8.00 GB, 2.00 GB/s, 3s left", ": 4.00 of 8.00 GB, 2.00 GB/s, 2s left", ": 5.00 of 8.00 GB, 0.04 GB/s, 1m13s left", ": 8.00 of 8.00 GB, 0.07 GB/s, 0s left"}
		if !slices.Equal(got, want) {
			t.Errorf("on a terminal: %q, want %q", got, want)
		}
	})
}
