// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
)

// mostVMs are the VMs that are tested: those of a large cluster would be no test of its network any more.
const mostVMs = 50

// vm is a VM that runs.
type vm struct {
	model.Pod
	name    string // namespace/name
	binding string
	// why it is not tested; empty: it is.
	why string
}

// testVMs tests the VMs of the cluster: their guests answer, from both nodes.
func testVMs(ctx context.Context, s *Suite, r *recorder) error {
	if !s.VMs {
		r.skip("not asked for: --vms")
		return nil
	}
	all, err := s.runningVMs(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		r.skip("no VM runs")
		return nil
	}
	if len(all) > mostVMs {
		r.skip("%d of %d VMs", len(all)-mostVMs, len(all))
		all = all[:mostVMs]
	}
	var checks []check
	var tested []vm
	for _, v := range all {
		if v.why != "" {
			r.skip("VM %s: %s", v.name, v.why)
			continue
		}
		tested = append(tested, v)
		to := target{label: fmt.Sprintf("VM %s (%s)", v.name, v.binding), explain: v.Namespace + "/" + v.Name, addrs: v.IPs}
		for _, letter := range []string{"a", "b"}[:len(s.nodes)] {
			checks = append(checks, s.checks("client-"+letter, to, false, probe.ICMP)...)
		}
	}
	r.expect(ctx, checks...)
	return s.testMigration(ctx, r, tested)
}

// testMigration migrates the first VM, where VMs can migrate.
func (s *Suite) testMigration(ctx context.Context, r *recorder, tested []vm) error {
	if !s.Disruptive || !s.cluster.Lab() {
		r.skip("migration: only in a lab, with --disruptive")
		return nil
	}
	if len(tested) == 0 {
		r.skip("migration: no VM was tested")
		return nil
	}
	pools, err := s.cluster.Objects().List(ctx, store.AddressPools())
	if err != nil {
		return fmt.Errorf("address pools: %w", err)
	}
	if len(pools) == 0 {
		r.skip("migration: addresses stay on their nodes without weft lab up --addresses pools")
		return nil
	}
	s.migrate(ctx, r, tested[0])
	return nil
}

// migrate live-migrates a VM to another node.
func (s *Suite) migrate(ctx context.Context, r *recorder, v vm) {
	i := slices.IndexFunc(s.nodes, func(node string) bool { return node != v.Node })
	if i < 0 {
		r.skip("migration: the cluster has one node")
		return
	}
	begun := time.Now()
	m, err := s.cluster.Migrate(ctx, v.name, s.nodes[i])
	row := Row{
		Name:     fmt.Sprintf("VM %s (%s) migrates from %s to %s with a connection", v.name, v.binding, v.Node, s.nodes[i]),
		Attempts: 1, OK: err == nil && m.Resets == 0,
	}
	row.Result.Micros = time.Since(begun).Microseconds()
	switch {
	case err != nil:
		row.Error = err.Error()
	case m.Resets > 0:
		row.Error = fmt.Sprintf("%d resets and lost lines", m.Resets)
	default:
		row.Result.State = probe.Answered
		row.Result.Detail = fmt.Sprintf("%d ms without data", m.Pause.Milliseconds())
	}
	r.result.Rows = append(r.result.Rows, row)
}

// runningVMs returns the VMs of the cluster whose pods run and have addresses.
func (f *fixture) runningVMs(ctx context.Context) ([]vm, error) {
	all, err := f.cluster.Objects().List(ctx, store.Pods())
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	var out []vm
	for _, o := range all {
		p, err := o.Pod()
		if err != nil {
			return nil, err
		}
		name := p.Annotations[multinet.DomainKey]
		if name == "" || p.Phase != "Running" || len(p.IPs) == 0 {
			continue
		}
		v := vm{Pod: p, name: p.Namespace + "/" + name}
		if err := f.readBinding(ctx, &v, name); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// vmFields are the fields of a VirtualMachineInstance that the test reads.
type vmFields struct {
	Spec struct {
		Domain struct {
			Devices struct {
				Interfaces []struct {
					Masquerade, Bridge *struct{}
					Binding            struct{ Name string }
					Ports              []struct{}
				}
			}
		}
	}
	Status struct {
		NodeName       string
		MigrationState struct {
			TargetPod         string
			Completed, Failed bool
		}
	}
}

// runsIn reports whether the VM runs in a pod: not in the target of a migration that has not succeeded, which a killed
// one leaves, nor in the source of one that has.
func (f vmFields) runsIn(p model.Pod) bool {
	m := f.Status.MigrationState
	if succeeded := m.Completed && !m.Failed; !succeeded && m.TargetPod == p.Name {
		return false
	}
	return f.Status.NodeName == "" || f.Status.NodeName == p.Node
}

// readBinding reads how the guest is connected, which decides what answers.
func (f *fixture) readBinding(ctx context.Context, v *vm, name string) error {
	kind := store.VirtualMachineInstances()
	o, err := f.cluster.Objects().Get(ctx, kind, kind.Key(v.Namespace, name))
	if errors.Is(err, store.ErrNotFound) {
		v.why = "its VirtualMachineInstance is not there"
		return nil
	}
	if err != nil {
		return fmt.Errorf("VM %s: %w", v.name, err)
	}
	var fields vmFields
	if err := json.Unmarshal(o.Raw, &fields); err != nil {
		return fmt.Errorf("VM %s: %w", v.name, err)
	}
	if !fields.runsIn(v.Pod) {
		v.why = "it does not run in pod " + v.Pod.Name
		return nil
	}
	all := fields.Spec.Domain.Devices.Interfaces
	switch {
	case len(all) == 0: // KubeVirt's default
		v.binding = "masquerade"
	case all[0].Bridge != nil: // the guest gets no IPv6 address
		v.binding = "bridge"
		v.IPs = slices.DeleteFunc(slices.Clone(v.IPs), netip.Addr.Is6)
	case all[0].Masquerade != nil:
		v.binding = "masquerade"
		if len(all[0].Ports) > 0 {
			v.why = "it forwards only some ports"
		}
	default:
		v.binding = all[0].Binding.Name
	}
	return nil
}
