// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
)

// maxQueued is how many entries of the queue are listed.
const maxQueued = 5

// queuedDELs lists the DELs that wait for the agent.
func queuedDELs(_ context.Context, n Node) []Finding {
	dir := wire.QueueDir(n.Config.Socket)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return warn("", "%v", err)
	}
	var out []Finding
	var waiting []string
	unreadable := 0
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.Name(), wire.BadSuffix):
			unreadable++
		case strings.HasSuffix(e.Name(), wire.QueueSuffix):
			waiting = append(waiting, e.Name())
		}
	}
	if len(waiting) > 0 {
		const hint = "the agent retries them, and its log has the reason: reinstall a missing plugin, or have the runtime run GC; removing a file drops its DEL"
		out = append(out, warn(hint, "%d queued DELs in %s: %s", len(waiting), dir, queued(dir, waiting))...)
	}
	if unreadable > 0 {
		out = append(
			out,
			warn("inspect the files, then remove them", "%d queued DELs in %s cannot be read (%s)", unreadable, dir,
				wire.BadSuffix)...)
	}
	return out
}

// queued describes the first entries.
func queued(dir string, names []string) string {
	var words []string
	for _, name := range names[:min(len(names), maxQueued)] {
		words = append(words, entry(filepath.Join(dir, name)))
	}
	if more := len(names) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}

// entry describes one queued DEL: the attachment and the time since it waits.
func entry(path string) string {
	name := filepath.Base(path)
	st, err := os.Stat(path)
	if err != nil {
		return name
	}
	since := st.ModTime().UTC().Format(time.RFC3339)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("%s since %s", name, since)
	}
	r, err := wire.ParseRequest(b)
	if err != nil {
		return fmt.Sprintf("%s since %s (%v)", name, since, err)
	}
	c, _ := cni.ParseCall(r.Getenv, r.Stdin())
	return fmt.Sprintf("%s of container %s, network %q, since %s (%s)", c.Request.IfName, c.Request.ContainerID,
		c.Request.Network, since, name)
}
