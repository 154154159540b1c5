// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// minFree is the free space that records and addresses need: with less, a DEL may fail.
const minFree = 16 << 20 // bytes

// programs checks that the plugins of the runtime's network are installed.
func programs(_ context.Context, n Node) []Finding {
	dir := n.Config.Install.BinDir
	if dir == "" {
		return skip("not checked: install.binDir is not set")
	}
	var out []Finding
	for _, name := range []string{"weft-cni", "loopback"} {
		out = append(out, program(n, name, "run weft install --cni-bin-dir "+dir)...)
	}
	for _, typ := range n.foreignPlugins() {
		out = append(out, program(n, typ, "install the vendor's plugin")...)
	}
	return out
}

func program(n Node, name, hint string) []Finding {
	path := filepath.Join(n.NodeRoot, n.Config.Install.BinDir, name)
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() == os.ModeSymlink {
		info, err = statLink(n.NodeRoot, path)
	}
	switch {
	case err != nil:
		return bad(hint, "plugin %s is missing: %v", name, err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return bad(hint, "plugin %s is not executable: %s has mode %s", name, path, info.Mode())
	case info.Size() == 0:
		return bad(hint, "plugin %s is empty: %s", name, path)
	}
	return nil
}

// statLink returns the target of a symbolic link, as a process sees it whose root directory is root.
func statLink(root, path string) (os.FileInfo, error) {
	target, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	if filepath.IsAbs(target) {
		return os.Stat(filepath.Join(root, target))
	}
	return os.Stat(filepath.Join(filepath.Dir(path), target))
}

// networks returns the file names of the runtime's network configurations, in the runtime's order.
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

// configurations checks the runtime's network configurations.
func configurations(_ context.Context, n Node) []Finding {
	dir := n.Config.Install.ConfDir
	if dir == "" {
		return skip("not checked: install.confDir is not set")
	}
	names, err := n.networks()
	if err != nil {
		return bad("create the directory, or set install.confDir", "%v", err)
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
				out, bad("fix or remove the file: containerd loads no configuration while one is invalid", "%s: %v",
					filepath.Join(dir, name), err)...)
		case first == "":
			first = name
			if n.Config.Network.Mode != config.ModeNone && !install.Weft(b) {
				out = append(
					out, bad("remove the file, or rename it to sort later", "%s comes before weft's: pods get %q without weft",
						filepath.Join(dir, name), list.Name)...)
			}
		}
	}
	if first == "" && len(out) == 0 {
		out = bad("the agent writes one when it is ready", "%s has no configuration", dir)
	}
	return out
}

// foreignPlugins returns the plugins that the first network names and weft does not have.
func (n Node) foreignPlugins() []string {
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
	pluginTypes(tree, found)
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

// pluginTypes collects the plugin types: "type" of objects in "plugins" and "delegates", and of "ipam".
func pluginTypes(v any, found map[string]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			pluginTypes(e, found)
		}
	case map[string]any:
		if typ, ok := v["type"].(string); ok {
			found[typ] = true
		}
		for _, key := range []string{"plugins", "delegates", "ipam"} {
			pluginTypes(v[key], found)
		}
	}
}

// sysctl is a kernel parameter that weft's networks need.
type sysctl struct {
	path, want, hint string
	level            Level
}

// kernelSettings checks the sysctls with which the kernel drops packets of pods.
func kernelSettings(_ context.Context, n Node) []Finding {
	var out []Finding
	for _, s := range []sysctl{
		{
			"net/ipv4/ip_forward", "1",
			"the first pod's ADD sets it; if pods run already, another program resets it: see /etc/sysctl.d", Warn,
		},
		{
			"net/ipv4/conf/all/rp_filter", "0 2",
			"sysctl -w net.ipv4.conf.all.rp_filter=2: strict filtering drops packets that return through another interface", Warn,
		},
	} {
		b, err := os.ReadFile(filepath.Join(n.Root, "/proc/sys", s.path))
		have := strings.TrimSpace(string(b))
		switch {
		case err != nil:
			out = append(out, warn("", "%v", err)...)
		case !slices.Contains(strings.Fields(s.want), have):
			out = append(out,
				Finding{Level: s.level, Hint: s.hint, Message: strings.ReplaceAll(s.path, "/", ".") + " is " + have})
		}
	}
	count, errCount := os.ReadFile(filepath.Join(n.Root, "/proc/sys/net/netfilter/nf_conntrack_count"))
	most, errMost := os.ReadFile(filepath.Join(n.Root, "/proc/sys/net/netfilter/nf_conntrack_max"))
	if err := errors.Join(errCount, errMost); err != nil {
		return append(out, skip("conntrack's size is not checked: %v", err)...)
	}
	return append(out, conntrackFull(strings.TrimSpace(string(count)), strings.TrimSpace(string(most)))...)
}

// freeSpace checks the file systems that a DEL writes to. A directory that does not exist yet will be in that of its
// closest parent.
func freeSpace(_ context.Context, n Node) []Finding {
	var out []Finding
	for _, dir := range []string{n.Config.StateDir, "/var/lib/cni"} {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		for errors.Is(err, unix.ENOENT) && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir)
			err = unix.Statfs(dir, &fs)
		}
		if err != nil {
			out = append(out, skip("%s is not checked: %v", dir, err)...)
			continue
		}
		if free := fs.Bavail * uint64(fs.Bsize); free < minFree {
			out = append(out, bad("free some space", "%s has %d KiB left", dir, free>>10)...)
		}
		if fs.Files > 0 && fs.Ffree == 0 {
			out = append(out, bad("delete some files", "%s has no inode left", dir)...)
		}
		if fs.Flags&unix.ST_RDONLY != 0 {
			out = append(out, bad("remount it read-write", "%s is read-only", dir)...)
		}
	}
	return out
}
