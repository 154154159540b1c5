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

// mostQueued is how many entries of the queue are named one by one.
const mostQueued = 5

// queueEmpty looks at the DELs that wait for the agent.
func queueEmpty(_ context.Context, n Node) []Finding {
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
		const hint = "a running agent retries them, and its log says why they fail: bring the missing plugin back, or have the runtime run GC; a file that is removed is a DEL that is never done"
		out = append(out, warn(hint, "%d DELs wait in %s: %s", len(waiting), dir, queued(dir, waiting))...)
	}
	if unreadable > 0 {
		out = append(out,
			warn("look at them, then take them away", "%d DELs in %s cannot be read (%s)", unreadable, dir, wire.BadSuffix)...)
	}
	return out
}

// queued names the oldest entries.
func queued(dir string, names []string) string {
	var words []string
	for _, name := range names[:min(len(names), mostQueued)] {
		words = append(words, entry(filepath.Join(dir, name)))
	}
	if more := len(names) - len(words); more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}

// entry says which attachment an entry is about, and since when it waits.
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
