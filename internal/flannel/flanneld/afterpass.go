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

// afterPass runs after a reconcile pass: it publishes the node, then updates the CNI plugin's file and the rules.
func (d *daemon) afterPass(s reconcile.Status) {
	if s.Topology.Self == "" {
		return // there was no plan
	}
	if len(s.Topology.Underlay) < len(d.families()) {
		d.lost.Notify()
		return // what was published stays
	}
	for _, f := range s.Fragments {
		if f.Owner == mesh.OwnerNode && !f.OK {
			d.health.setProblem("mesh", errors.New(f.Error))
			return
		}
	}
	d.health.clearProblem("mesh")
	_ = d.cfg.Failpoint.At("mesh")
	d.mgr.publish(s.Topology.Publish)
	d.rules.set(s.Topology.PodCIDRs)
	if err := d.writeSubnetFile(s.Topology); err != nil {
		d.log.Error("agent could not write the subnet file", "err", err)
		d.health.setProblem("subnet file", err)
		return
	}
	d.health.clearProblem("subnet file")
	_ = d.cfg.Failpoint.At("subnet file")
	d.mayBeReady()
}

// mayBeReady reports once that the daemon is ready.
func (d *daemon) mayBeReady() {
	if d.health.becameReady() {
		d.log.Info("daemon is ready")
		if d.cfg.Ready != nil {
			d.cfg.Ready()
		}
	}
}

// previous returns the subnets of subnet.env.
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
		d.log.Warn("earlier subnet file is not used", "path", d.cfg.SubnetFile, "err", err)
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

// writeSubnetFile writes the file for the CNI plugin, if it has changed.
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
	d.log.Info("daemon wrote the subnet file", "path", d.cfg.SubnetFile, "subnets", t.PodCIDRs, "mtu", env.MTU)
	return nil
}
