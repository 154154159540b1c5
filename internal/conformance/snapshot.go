// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// snapshot is the state of a namespace, a sorted list with a line for each object.
type snapshot []string

// takeSnapshot reads links, addresses, routes, rules, qdiscs and the packet filter of a namespace.
func takeSnapshot(ctx context.Context, ns *netns.NS) (snapshot, error) {
	var v snapshot
	err := ns.Do(func() error {
		for _, read := range []func() (snapshot, error){links, addresses, routes, rules, qdiscs} {
			more, err := retryInterrupted(read)
			if err != nil {
				return err
			}
			v = append(v, more...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	filter, err := ruleset(ctx, ns)
	v = append(v, filter...)
	slices.Sort(v)
	return v, err
}

// retryInterrupted repeats a dump that was interrupted by a concurrent change (NLM_F_DUMP_INTR).
func retryInterrupted(read func() (snapshot, error)) (snapshot, error) {
	const tries = 10
	var v snapshot
	var err error
	for range tries {
		if v, err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return v, err
}

func links() (snapshot, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	names := map[int]string{}
	for _, l := range list {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var v snapshot
	for _, l := range list {
		a := l.Attrs()
		line := fmt.Sprintf("link %s %s mtu %d", a.Name, l.Type(), a.MTU)
		if a.Flags&net.FlagUp != 0 {
			line += " up"
		}
		if a.Promisc > 0 {
			line += " promiscuous"
		}
		if a.MasterIndex != 0 {
			line += " of " + names[a.MasterIndex]
		}
		v = append(v, line)
	}
	return v, nil
}

func addresses() (snapshot, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	var v snapshot
	for _, l := range list {
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addrs {
			if !a.IP.IsLinkLocalUnicast() && !a.IP.IsLoopback() { // added by the kernel at any time
				v = append(v, fmt.Sprintf("address %s of %s", a.IPNet, l.Attrs().Name))
			}
		}
	}
	return v, nil
}

func routes() (snapshot, error) {
	list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	var v snapshot
	for _, r := range list {
		if r.Table == unix.RT_TABLE_LOCAL || r.Type != unix.RTN_UNICAST ||
			r.Dst != nil && (r.Dst.IP.IsLinkLocalUnicast() || r.Dst.IP.IsMulticast()) {
			continue
		}
		dev := fmt.Sprint(r.LinkIndex)
		if l, err := netlink.LinkByIndex(r.LinkIndex); err == nil {
			dev = l.Attrs().Name
		}
		dst := "default"
		if r.Dst != nil {
			dst = r.Dst.String()
		}
		v = append(v, fmt.Sprintf("route %s via %v dev %s table %d", dst, r.Gw, dev, r.Table))
	}
	return v, nil
}

func rules() (snapshot, error) {
	list, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	var v snapshot
	for _, r := range list {
		if r.Table == 0 && r.Src == nil && r.Dst == nil {
			continue // added by the kernel with the first VRF
		}
		v = append(v, fmt.Sprintf("rule %d from %v to %v table %d", r.Priority, r.Src, r.Dst, r.Table))
	}
	return v, nil
}

// qdiscs returns the qdiscs that are not a default.
func qdiscs() (snapshot, error) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	var v snapshot
	for _, l := range list {
		found, err := netlink.QdiscList(l)
		if err != nil {
			continue // the link is deleted meanwhile
		}
		for _, q := range found {
			switch q.Type() {
			case "noqueue", "pfifo_fast", "fq_codel", "mq", "pfifo":
			default:
				v = append(v, fmt.Sprintf("qdisc %s of %s", q.Type(), l.Attrs().Name))
			}
		}
	}
	return v, nil
}

// ruleset lists the packet filter by the program nft, including rules of iptables-nft; nothing if nft is missing.
func ruleset(ctx context.Context, ns *netns.NS) (snapshot, error) {
	if _, err := exec.LookPath("nft"); err != nil {
		return nil, nil
	}
	out, err := runTool(ctx, ns, "nft", "-s", "list", "ruleset")
	if err != nil {
		return nil, err
	}
	return splitRuleset(out), nil
}

// splitRuleset returns a line for each object, rule and element, independently of nft's line breaks.
func splitRuleset(out string) snapshot {
	var v snapshot
	var at string
	elements := false
	for line := range strings.Lines(out) {
		words := strings.TrimSpace(line)
		if rest, found := strings.CutPrefix(words, "elements = {"); found {
			elements, words = true, rest
		}
		switch {
		case elements:
			more, last := strings.CutSuffix(words, "}")
			for e := range strings.SplitSeq(more, ", ") {
				if e = strings.Trim(e, ", "); e != "" {
					v = append(v, "nft "+at+": element "+e)
				}
			}
			elements = !last
		case words == "" || words == "}" || strings.HasPrefix(words, "#"):
		case strings.HasSuffix(words, "{"):
			at = strings.TrimSuffix(words, " {")
			v = append(v, "nft "+at)
		default:
			v = append(v, "nft "+at+": "+words)
		}
	}
	return v
}

// runTool executes a program in a namespace.
func runTool(ctx context.Context, ns *netns.NS, argv ...string) (string, error) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := ns.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, short(errs.String()))
	}
	return out.String(), nil
}

// diff returns the differences between before and now.
func diff(before, now snapshot) []string {
	var out []string
	rest := slices.Clone(before)
	for _, line := range now {
		if i := slices.Index(rest, line); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			continue
		}
		out = append(out, "left: "+line)
	}
	for _, line := range rest {
		out = append(out, "gone: "+line)
	}
	return out
}

// filesNaming returns the files below directories whose name or content has the container ID, without the kit's own
// files.
func filesNaming(id string, dirs ...string) []string {
	const maxSize = 64 << 10
	var out []string
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return nil // deleted meanwhile
			case d.IsDir() && path == workDir && path != dir:
				return filepath.SkipDir
			case d.IsDir():
				return nil
			}
			found := strings.Contains(d.Name(), id)
			if info, err := d.Info(); !found && err == nil && info.Mode().IsRegular() && info.Size() <= maxSize {
				b, _ := os.ReadFile(path)
				found = bytes.Contains(b, []byte(id))
			}
			if found {
				out = append(out, "left: file "+path)
			}
			return nil
		})
	}
	return out
}
