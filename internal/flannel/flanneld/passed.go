// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// passed goes on where a pass over the kernel has ended: the other nodes are told, then the CNI plugin and the rules.
func (d *daemon) passed(s reconcile.Status) {
	if s.Topology.Self == "" {
		return // there was no plan
	}
	if len(s.Topology.Underlay) < len(d.families()) {
		d.lost.Notify()
		return // what was said before stays said
	}
	for _, f := range s.Fragments {
		if f.Owner == mesh.OwnerNode && !f.OK {
			d.health.ill("mesh", errors.New(f.Error))
			return
		}
	}
	d.health.well("mesh")
	_ = d.cfg.Step.At("mesh")
	d.mgr.publish(s.Topology.Publish)
	d.rules.set(s.Topology.PodCIDRs)
	if err := d.writeSubnetFile(s.Topology); err != nil {
		d.log.Error("subnet file", "err", err)
		d.health.ill("subnet file", err)
		return
	}
	d.health.well("subnet file")
	_ = d.cfg.Step.At("subnet file")
	d.mayBeReady()
}

// mayBeReady says once that the daemon is ready.
func (d *daemon) mayBeReady() {
	if d.health.becameReady() {
		d.log.Info("ready")
		if d.cfg.Ready != nil {
			d.cfg.Ready()
		}
	}
}

// previous are the subnets of subnet.env.
func (d *daemon) previous() []netip.Prefix {
	text, err := os.ReadFile(d.cfg.SubnetFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var env flannel.SubnetEnv
	if err == nil {
		env, err = flannel.ParseSubnetEnv(text)
	}
	if err != nil {
		d.log.Warn("subnet file of before is not used", "path", d.cfg.SubnetFile, "err", err)
		return nil
	}
	var out []netip.Prefix
	for _, p := range []netip.Prefix{env.Subnet, env.IPv6Subnet} {
		if p.IsValid() && d.conf.Family(familyOf(p.Addr())) {
			out = append(out, p)
		}
	}
	return out
}

// writeSubnetFile tells the CNI plugin. A file that says the same is left alone.
func (d *daemon) writeSubnetFile(t mesh.Topology) error {
	env := flannel.SubnetEnv{Networks: d.conf.Networks(), MTU: t.PacketMTU(), IPMasq: d.cfg.IPMasq}
	for _, p := range t.PodCIDRs {
		first := netip.PrefixFrom(p.Addr().Next(), p.Bits())
		if p.Addr().Is4() {
			env.Subnet = first
		} else {
			env.IPv6Subnet = first
		}
	}
	text := []byte(env.String())
	if have, err := os.ReadFile(d.cfg.SubnetFile); err == nil && slices.Equal(have, text) {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(d.cfg.SubnetFile), 0o755)
	if err == nil {
		err = atomicfile.Write(d.cfg.SubnetFile, text, 0o644, atomicfile.Durable)
	}
	if err != nil {
		return err
	}
	d.log.Info("subnet file", "path", d.cfg.SubnetFile, "subnets", t.PodCIDRs, "mtu", env.MTU)
	return nil
}
