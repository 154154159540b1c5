// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// ErrAbsent is wrapped when the host has no iptables program.
var ErrAbsent = errors.New("program is absent")

// Conn manages the iptables of one network namespace.
type Conn struct {
	ns     *netns.NS
	root   string
	flavor string
}

// New returns the iptables of ns; nil is the process's own namespace. ns must stay open as long as the Conn is used.
// root is where the host's files are when the process runs in a container, empty otherwise: the programs are found and
// run there.
func New(ns *netns.NS, root string) *Conn { return &Conn{ns: ns, root: root} }

// The two kinds of iptables, which do not see each other's rules. A host may have both; its administrator chooses which
// one has the plain names.
const (
	NFT    = state.KindNFT
	Legacy = state.KindLegacy
)

// Of returns the same namespace by programs of one kind, if the host has them.
func (c *Conn) Of(kind string) *Conn {
	other := *c
	other.flavor = "-" + kind
	return &other
}

// program returns the name of a program of the wanted kind: iptables-legacy-save.
func (c *Conn) program(t state.IPTables, rest string) string {
	flavor := c.flavor
	switch {
	case t.Legacy:
		flavor = "-" + Legacy
	case t.NFT:
		flavor = "-" + NFT
	}
	if name := t.Program() + flavor + rest; flavor != "" {
		if _, err := Find(c.root, name); err == nil {
			return name
		}
	}
	return t.Program() + rest
}

// ReadsLegacy reports whether the host has a program for the tables that the kernel keeps outside nft. A program of the
// other kind prints nft's tables instead.
func (c *Conn) ReadsLegacy(ctx context.Context, v6 bool) (bool, error) {
	t := state.IPTables{IPv6: v6, Legacy: true}
	if name := c.program(t, "-save"); name != t.Program()+"-save" {
		return true, nil
	}
	out, err := c.run(ctx, "", t.Program(), "--version")
	var f *failure
	if errors.Is(err, ErrAbsent) || errors.As(err, &f) {
		return false, nil
	}
	return err == nil && !bytes.Contains(out, []byte("nf_tables")), err
}

// Find returns the path of a program, below the root: in PATH, or where administrators' programs are, which a runtime's
// PATH for plugins may omit.
func Find(root, name string) (string, error) {
	dirs := []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}
	if root == "" {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	} else {
		dirs = append(dirs, "/usr/bin", "/bin")
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		// The target of a symbolic link is relative to the root, which Lstat ignores.
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrAbsent)
}

// failure is a program that failed.
type failure struct {
	program string
	code    int
	says    string
}

func (f *failure) Error() string {
	if f.says == "" {
		return fmt.Sprintf("%s: exit code %d", f.program, f.code)
	}
	return fmt.Sprintf("%s: exit code %d: %s", f.program, f.code, f.says)
}

// busy is the exit code of a program that did not get the lock of iptables-legacy.
const busy = 4

// run executes a program in the namespace, with a clean environment: its output must not depend on the caller's.
func (c *Conn) run(ctx context.Context, stdin, name string, args ...string) ([]byte, error) {
	path, err := Find(c.root, name)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	err = c.ns.Do(func() error {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		cmd.WaitDelay = time.Second
		// A program that outlives a killed caller could restore what the next caller has just deleted.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Chroot: c.root}
		if c.root != "" {
			cmd.Dir = "/"
		}
		return cmd.Run()
	})
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", name, ctx.Err())
	case errors.As(err, &exit):
		says := strings.Join(strings.FieldsFunc(stderr.String(), func(r rune) bool { return r == '\n' }), "; ")
		return nil, &failure{program: name, code: exit.ExitCode(), says: says}
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w: %w", name, ErrAbsent, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return stdout.Bytes(), nil
}

// has executes the program to check whether a rule exists.
func (c *Conn) has(ctx context.Context, t state.IPTables, chain string, rule []string) (bool, error) {
	_, err := c.run(ctx, "", c.program(t, ""), append([]string{"-w", "5", "-t", t.Table, "-C", chain}, rule...)...)
	var f *failure
	if errors.As(err, &f) && f.code != busy {
		return false, nil // no such rule, no such chain, or no such set that the rule refers to
	}
	return err == nil, err
}
