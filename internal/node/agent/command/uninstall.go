// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/cli/doctor"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/hostenv"
	"github.com/weft-net/weft/internal/node/uninstall"
	"github.com/weft-net/weft/internal/plural"
)

// uninstallPeriod is the pause before the next pass of --wait.
const uninstallPeriod = 3 * time.Second

// uninstall removes what weft itself has made on the node.
func (c *cleaning) uninstall(ctx context.Context, out io.Writer) error {
	node, err := doctor.Local(ctx, c.source.Config, "")
	if err != nil {
		return err
	}
	settings := node.Config
	settings.StateDir = cmp.Or(c.stateDir, settings.StateDir)
	settings.Install.ConfDir = cmp.Or(c.confDir, settings.Install.ConfDir, "/etc/cni/net.d")
	settings.Install.BinDir = cmp.Or(c.binDir, settings.Install.BinDir, "/opt/cni/bin")
	id, err := boot.ID() // as the agent saw it: the root has a /proc of its own
	if err != nil {
		return err
	}
	if c.root != "" {
		if err := enterRoot(c.root); err != nil {
			return err
		}
	}
	// A container of the manifests has /proc/sys read-only.
	if err := hostenv.WritableSysctls(); err != nil && !c.dryRun {
		return err
	}
	host, err := kernel.Dial(nil)
	if err != nil {
		return err
	}
	defer func() { _ = host.Close() }()
	host.Programs = redirect.Joins{}
	n := uninstall.New(uninstall.Config{
		Settings: settings, Boot: id, Host: host, Now: time.Now, After: time.After,
		Log: slog.New(slog.NewTextHandler(c.source.Env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if c.dryRun {
		found, err := n.Find(ctx)
		if err != nil {
			return err
		}
		return c.printUninstall(out, found)
	}
	if !c.wait {
		found, err := n.Remove(ctx)
		if err != nil {
			return err
		}
		return c.printUninstall(out, found)
	}
	return c.removeWithPods(ctx, out, n)
}

// removeWithPods removes until nothing is left: what pods use when they are gone. The last line of the output is always
// the state of the node.
func (c *cleaning) removeWithPods(ctx context.Context, out io.Writer, n *uninstall.Node) error {
	last := ""
	for {
		found, err := n.Remove(ctx)
		var text string
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			text = "not removed yet: " + err.Error()
		case len(found.Pods) > 0:
			text = uninstall.Waiting(found.Pods)
		default:
			_, err := fmt.Fprintf(out, "%s%s\n", lines(found.Objects), uninstall.Clean)
			if err == nil && c.hold {
				<-ctx.Done()
			}
			return err
		}
		if text != last {
			last = text
			if _, err := fmt.Fprintf(out, "%s%s\n", lines(found.Objects), text); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(uninstallPeriod):
		}
	}
}

func lines(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return strings.Join(of, "\n") + "\n"
}

// enterRoot makes the node's root file system the process's: its links are absolute.
func enterRoot(root string) error {
	err := syscall.Chroot(root)
	if err == nil {
		err = syscall.Chdir("/")
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "mount the node's / there, and run it with CAP_SYS_CHROOT", "--root %s: %w", root, err)
	}
	return nil
}

func (c *cleaning) printUninstall(out io.Writer, found uninstall.Found) error {
	if c.output.Document() {
		return c.output.Print(out, map[string]any{
			"found": found.Objects, "pods": found.Pods, "kept": slices.Concat([]string{}, found.Kept), "done": !c.dryRun,
		})
	}
	did := "removed"
	if c.dryRun {
		did = "to remove (dry run)"
	}
	var b strings.Builder
	b.WriteString(lines(found.Objects))
	for _, kept := range found.Kept {
		fmt.Fprintf(&b, "kept: %s\n", kept)
	}
	fmt.Fprintf(&b, "%s %s\n", plural.Count(len(found.Objects), "object", "objects"), did)
	if len(found.Pods) > 0 {
		fmt.Fprintf(&b, "%s\n", uninstall.Waiting(found.Pods))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
