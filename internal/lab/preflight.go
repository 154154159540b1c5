// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/limits"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// preflight refuses a lab that this host cannot run, before anything is created.
func (u Up) preflight(ctx context.Context) error {
	if err := (limits.Lab{Nodes: u.Spec.Nodes, Pods: u.pods()}).Check("/proc"); err != nil {
		return err
	}
	return checkKernel(ctx, u.Spec)
}

// pods estimates the number of pods of the manifests. What cannot be read is reported later, with its path.
func (u Up) pods() int {
	n := 0
	for _, from := range u.From {
		s, err := dir.Open(from)
		if err != nil {
			continue
		}
		objects, err := s.List("")
		if err != nil {
			continue
		}
		for _, o := range objects {
			if o.Is("Pod") || IsVM(o) && !u.NoVMs {
				n++
			}
		}
	}
	return n
}

// checkKernel creates each kind of link that the lab needs in a temporary namespace.
func checkKernel(ctx context.Context, s layout.Spec) error {
	ns, err := netns.Anonymous()
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	conn, err := kernel.Dial(ns)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, links := range probeLinks(s) {
		f := state.Fragment{Owner: "lab/probe"}
		f.Host.Links = links
		err := kernel.Spaces{Host: conn}.Apply(ctx, f)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return unsupported(s.Encapsulation, "links of kind "+string(links[0].Kind), err)
		}
		if err != nil {
			return fmt.Errorf("probe for links of kind %s: %w", links[0].Kind, err)
		}
	}
	if s.Encapsulation == "udp" {
		f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
		if err != nil {
			return unsupported(s.Encapsulation, "tun devices", withoutPath(err))
		}
		return f.Close()
	}
	return nil
}

func unsupported(encapsulation, feature string, err error) error {
	hint := "load its module, or use a kernel that supports it"
	if encapsulation != "" && encapsulation != "host-gw" {
		hint += "; --encapsulation host-gw does not need it"
	}
	return model.Errorf(model.CodeNotAvailable, hint, "this kernel does not support %s: %w", feature, err)
}

// probeLinks returns one or two links of each kind that the lab needs. WireGuard is not among them: if the kernel does not
// support it, the agent encapsulates in user space.
func probeLinks(s layout.Spec) [][]state.Link {
	end := func(name, other string) state.Link {
		return state.Link{Name: name, Kind: state.Veth, Peer: &state.Peer{Space: state.Host, Name: other}}
	}
	out := [][]state.Link{{{Name: "probe-br", Kind: state.Bridge}}, {end("probe-a", "probe-b"), end("probe-b", "probe-a")}}
	loopback := netip.MustParseAddr("127.0.0.1")
	switch s.Encapsulation {
	case "vxlan":
		out = append(out, []state.Link{
			{Name: "probe-vxlan", Kind: state.VXLAN, VXLAN: &state.VXLANAttrs{VNI: 1, Port: 8472, Local: loopback}},
		})
	case "ipip":
		out = append(out, []state.Link{{Name: "probe-ipip", Kind: state.IPIP, IPIP: &state.IPIPAttrs{Local: loopback}}})
	}
	return out
}
