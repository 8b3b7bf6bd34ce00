//go:build linux && (amd64 || arm64)

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kiln-project/kiln/codegen/llvm"
	"github.com/kiln-project/kiln/runtime/host"
)

// offline makes the test binary the kiln command without a network: the kernel kills
// it, or a child of it, for the call that makes a socket. With the value "socket" it
// makes one itself.
const offline = "CLI_TEST_IS_OFFLINE"

func init() {
	switch os.Getenv(offline) {
	case "":
		return
	case "socket":
		if err := forbidSockets(); err != nil {
			refuseFilter(err)
		}
		_, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		fmt.Fprintln(os.Stderr, "there is a socket", err)
		os.Exit(0)
	}
	if err := forbidSockets(); err != nil {
		refuseFilter(err)
	}
	os.Unsetenv(offline)
}

// noFilter is the exit code of a child whose kernel takes no filter.
const noFilter = 77

func refuseFilter(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(noFilter)
}

// forbidSockets has the kernel kill the process for socket(2), on all of its threads
// and in all of its children. What a kernel of another architecture would call so is
// not looked at: a process has one.
func forbidSockets() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const numberOffset = 0 // of nr in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 || thread != 0 {
		return fmt.Errorf("seccomp: %w (thread %d)", errno, thread)
	}
	return nil
}

// Commands work where the kernel kills whoever makes a socket.
func TestNoNetwork(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := func(value, stdin string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), self, args...)
		cmd.Env = []string{offline + "=" + value, reexec + "=1", onRef, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
		cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &stderr
		return cmd, &stderr
	}
	control, stderr := child("socket", "")
	err = control.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == noFilter {
		t.Skipf("the kernel takes no filter of system calls: %s", stderr)
	}
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGSYS {
		t.Fatalf("a child that makes a socket ends with %v, want signal SIGSYS; standard error %s", err, stderr)
	}
	dir := t.TempDir()
	out, cache := filepath.Join(dir, "tiny.kiln"), filepath.Join(dir, "cache")
	commands := [][]string{
		{"version"},
		{"tokenize", "--model", tinyModel},
		{"run", "--model", tinyModel, "--prompt", "package main", "--max-new-tokens", "2"},
		{"dump", "--model", tinyModel, "--entry", "pack"},
		{"doctor"},
	}
	if name, err := compilesForHost(t); err == nil {
		commands = append(commands,
			[]string{"compile", "--model", tinyModel, "--target", name, "--batch", "1", "--prefill", "16", "--max-seq", "128", "--speculate", "0", "--cache-dir", cache, "-o", out},
			[]string{"run", "--model", tinyModel, "--bundle", out, "--device", "host", "--prompt", "package main", "--max-new-tokens", "2"},
		)
	}
	for _, args := range commands {
		cmd, stderr := child("1", "package main", args...)
		if err := cmd.Run(); err != nil {
			t.Errorf("kiln %q: %v; standard error %s", args, err, stderr)
		}
	}
}

// compilesForHost is the target of this CPU, if there is an LLVM.
func compilesForHost(t *testing.T) (string, error) {
	if _, err := llvm.Find(t.Context(), llvm.FindOptions{}); err != nil {
		return "", err
	}
	return host.Target()
}
