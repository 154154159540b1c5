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

// Conn is the iptables of one network namespace.
type Conn struct {
	ns     *netns.NS
	root   string
	flavor string
}

// New speaks of ns; nil is the process's own namespace. ns must stay open as long as the Conn is used. root is where
// the host's files are when the process lives in a container, empty otherwise: the programs are found and run there.
func New(ns *netns.NS, root string) *Conn { return &Conn{ns: ns, root: root} }

// The two kinds of iptables, which do not see each other's rules. A host may have both; what the plain names mean is
// its administrator's choice.
const (
	NFT    = state.KindNFT
	Legacy = state.KindLegacy
)

// Of is the same namespace by programs of one kind, as far as the host has them.
func (c *Conn) Of(kind string) *Conn {
	other := *c
	other.flavor = "-" + kind
	return &other
}

// program is the name of a program of the wanted kind: iptables-legacy-save.
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

// ReadsLegacy tells whether the host has a program for the tables that the kernel keeps without nft. One of another
// kind prints what nft has instead.
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

// Find is the path of a program, below the root: in PATH, or where administrators' programs are, which the PATH that a
// runtime hands to its plugins may leave out.
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
		// Where it leads to is the host's business: a link to an absolute path means one below the root.
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrAbsent)
}

// failure is a program that ended badly.
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

// busy is the exit code of a program that did not get the lock which the older iptables take.
const busy = 4

// run executes a program in the namespace, with a clean environment: what it prints must not depend on who calls.
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
		// A program that outlives a killed caller would bring back what the next caller has just taken away.
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

// has asks the program itself whether a rule is there.
func (c *Conn) has(ctx context.Context, t state.IPTables, chain string, rule []string) (bool, error) {
	_, err := c.run(ctx, "", c.program(t, ""), append([]string{"-w", "5", "-t", t.Table, "-C", chain}, rule...)...)
	var f *failure
	if errors.As(err, &f) && f.code != busy {
		return false, nil // no such rule, no such chain, or no such set that the rule speaks of
	}
	return err == nil, err
}
