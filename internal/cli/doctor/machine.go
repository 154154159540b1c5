// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// leastRoom is what must be free for records and addresses: below it, a DEL may fail.
const leastRoom = 16 << 20 // bytes

// programs looks for what the runtime will execute.
func programs(_ context.Context, n Node) []Finding {
	dir := n.Config.Install.BinDir
	if dir == "" {
		return skip("not looked for: install.binDir is not set")
	}
	var out []Finding
	for _, name := range []string{"weft-cni", "loopback"} {
		out = append(out, program(n, name, "weft install --cni-bin-dir "+dir+" puts it there")...)
	}
	for _, typ := range n.foreign() {
		out = append(out, program(n, typ, "its vendor's installation puts it there")...)
	}
	return out
}

func program(n Node, name, hint string) []Finding {
	path := filepath.Join(n.NodeRoot, n.Config.Install.BinDir, name)
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() == os.ModeSymlink {
		info, err = followed(n.NodeRoot, path)
	}
	switch {
	case err != nil:
		return bad(hint, "plugin %s is missing: %v", name, err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return bad(hint, "plugin %s is no program: %s has mode %s", name, path, info.Mode())
	case info.Size() == 0:
		return bad(hint, "plugin %s is empty: %s", name, path)
	}
	return nil
}

// followed is what a link leads to, for a process that has root as its root.
func followed(root, path string) (os.FileInfo, error) {
	target, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	if filepath.IsAbs(target) {
		return os.Stat(filepath.Join(root, target))
	}
	return os.Stat(filepath.Join(filepath.Dir(path), target))
}

// networks are the configurations of the runtime's directory, in its order.
func (n Node) networks() ([]string, error) {
	entries, err := os.ReadDir(n.Config.Install.ConfDir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// configurations looks at the runtime's directory as the runtime does.
func configurations(_ context.Context, n Node) []Finding {
	dir := n.Config.Install.ConfDir
	if dir == "" {
		return skip("not looked at: install.confDir is not set")
	}
	names, err := n.networks()
	if err != nil {
		return bad("make it, or set install.confDir", "%v", err)
	}
	var out []Finding
	first := ""
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		var list *confdir.Network
		if err == nil {
			list, err = confdir.Parse(b, dir)
		}
		switch {
		case err != nil:
			out = append(
				out, bad("containerd takes no configuration at all while one is bad: put it right, or take it away", "%s: %v",
					filepath.Join(dir, name), err)...)
		case first == "":
			first = name
			if n.Config.Network.Mode != config.ModeNone && !strings.Contains(string(b), `"`+cni.ShimType+`"`) {
				out = append(
					out, bad("take it away, or give it a name that sorts later", "%s comes before weft's: pods get %q without weft",
						filepath.Join(dir, name), list.Name)...)
			}
		}
	}
	if first == "" && len(out) == 0 {
		out = bad("the agent puts one there when it is ready", "%s has no configuration", dir)
	}
	return out
}

// foreign are the plugins that the first network names and that weft has not built in.
func (n Node) foreign() []string {
	names, err := n.networks()
	if err != nil || len(names) == 0 {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(n.Config.Install.ConfDir, names[0]))
	if err != nil {
		return nil
	}
	var tree any
	if json.Unmarshal(b, &tree) != nil {
		return nil
	}
	found := map[string]bool{}
	types(tree, found)
	var out []string
	known := plugin.InAgent()
	for typ := range found {
		if known[typ] == nil &&
			!slices.Contains([]string{cni.ShimType, "host-local", "static", "dhcp", "whereabouts", "multus", "multus-shim"},
				typ) &&
			cni.CheckType(typ) == nil {
			out = append(out, typ)
		}
	}
	slices.Sort(out)
	return out
}

// types gathers the values of the key "type" of plugins: of objects in "plugins" and "delegates", and of "ipam".
func types(v any, found map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			types(e, found)
		}
	case map[string]any:
		if typ, ok := v["type"].(string); ok {
			found[typ] = true
		}
		for _, key := range []string{"plugins", "delegates", "ipam"} {
			types(v[key], found)
		}
	}
}

// setting is a sysctl that weft's networks need.
type setting struct {
	path, want, hint string
	level            Level
}

// kernelSettings reads the sysctls without which packets of pods are dropped.
func kernelSettings(_ context.Context, n Node) []Finding {
	var out []Finding
	for _, s := range []setting{
		{
			"net/ipv4/ip_forward", "1",
			"the first pod's network sets it; where pods run, somebody sets it back: see /etc/sysctl.d", Warn,
		},
		{
			"net/ipv4/conf/all/rp_filter", "0 2",
			"sysctl -w net.ipv4.conf.all.rp_filter=2: strict filtering drops what comes back by another interface", Warn,
		},
	} {
		b, err := os.ReadFile(filepath.Join(n.Root, "/proc/sys", s.path))
		have := strings.TrimSpace(string(b))
		switch {
		case err != nil:
			out = append(out, warn("", "%v", err)...)
		case !slices.Contains(strings.Fields(s.want), have):
			out = append(out, Finding{Level: s.level, Hint: s.hint, Says: strings.ReplaceAll(s.path, "/", ".") + " is " + have})
		}
	}
	count, errCount := os.ReadFile(filepath.Join(n.Root, "/proc/sys/net/netfilter/nf_conntrack_count"))
	most, errMost := os.ReadFile(filepath.Join(n.Root, "/proc/sys/net/netfilter/nf_conntrack_max"))
	if errCount == nil && errMost == nil {
		out = append(out, conntrack(strings.TrimSpace(string(count)), strings.TrimSpace(string(most)))...)
	}
	return out
}

// roomLeft looks at the file systems that a DEL writes to.
func roomLeft(_ context.Context, n Node) []Finding {
	var out []Finding
	for _, dir := range []string{n.Config.StateDir, "/var/lib/cni"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			continue // it is not there yet
		}
		if free := fs.Bavail * uint64(fs.Bsize); free < leastRoom {
			out = append(out, bad("make room there", "%s has %d KiB left", dir, free>>10)...)
		}
		if fs.Files > 0 && fs.Ffree == 0 {
			out = append(out, bad("make room there", "%s has no inode left", dir)...)
		}
		if fs.Flags&unix.ST_RDONLY != 0 {
			out = append(out, bad("mount it writable", "%s is read-only", dir)...)
		}
	}
	return out
}
