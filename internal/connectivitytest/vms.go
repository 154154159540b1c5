// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	phase   string // of the VirtualMachineInstance
	// why it is not tested; empty: it is.
	why string
}

// testVMs tests VMs: their guests answer, from both nodes. In a lab it also boots VMs of its own.
func testVMs(ctx context.Context, s *Suite, r *recorder) error {
	if !s.VMs && !s.BootVMs {
		r.skip("not asked for: --vms, --boot-vms")
		return nil
	}
	var others, booted []vm
	var err error
	if s.VMs {
		if others, err = s.runningVMs(ctx); err != nil {
			return err
		}
	}
	if len(others) > mostVMs {
		r.skip("%d of %d VMs", len(others)-mostVMs, len(others))
		others = others[:mostVMs]
	}
	if s.BootVMs {
		if booted, err = s.bootVMs(ctx, r); err != nil {
			return err
		}
	}
	if len(others)+len(booted) == 0 {
		r.skip("no VM runs")
		return nil
	}
	tested := s.testable(r, slices.Concat(others, booted))
	r.expect(ctx, s.vmChecks(tested)...)
	// One that the test booted would not be found at its target when it is deleted.
	return s.testMigration(ctx, r, slices.DeleteFunc(tested, func(v vm) bool { return v.Namespace == s.namespace }))
}

// testable returns the VMs that can be tested.
func (s *Suite) testable(r *recorder, all []vm) (out []vm) {
	for _, v := range all {
		if v.why != "" {
			r.skip("VM %s: %s", v.name, v.why)
			continue
		}
		out = append(out, v)
	}
	return out
}

// vmChecks are the checks of VMs from both nodes.
func (s *Suite) vmChecks(all []vm) (checks []check) {
	for _, v := range all {
		to := target{label: fmt.Sprintf("VM %s (%s)", v.name, v.binding), explain: v.Namespace + "/" + v.Name, addrs: v.IPs}
		for _, letter := range []string{"a", "b"}[:len(s.nodes)] {
			checks = append(checks, s.checks("client-"+letter, to, false, probe.ICMP)...)
		}
	}
	return checks
}

// bootTimeout is the time for the boot of the test's VMs, which are emulated.
const bootTimeout = 3 * time.Minute

// bindings are the bindings that connect a VM to the network of pods, as an interface of a VirtualMachineInstance has them.
func bindings() map[string]map[string]any {
	return map[string]map[string]any{
		"masquerade":  {"masquerade": map[string]any{}},
		"bridge":      {"bridge": map[string]any{}},
		"weft-direct": {"binding": map[string]any{"name": "weft-direct"}},
	}
}

// bootVMs starts a VM with each binding, and returns them when their guests run: before that their pods answer.
func (s *Suite) bootVMs(ctx context.Context, r *recorder) ([]vm, error) {
	if err := s.cluster.RunsVMs(ctx); err != nil {
		r.skip("VMs of the test: %v", err)
		return nil, nil
	}
	all := bindings()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		manifest := vmManifest(s.namespace, name, s.nodes[i%len(s.nodes)], all[name])
		if err := s.create(ctx, store.VirtualMachineInstances(), manifest); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	for {
		running, err := s.runningVMs(ctx)
		if err != nil {
			return nil, err
		}
		own := slices.DeleteFunc(running, func(v vm) bool { return v.Namespace != s.namespace || v.phase != "Running" })
		if len(own) == len(all) {
			return own, nil
		}
		select {
		case <-ctx.Done():
			return nil, model.Errorf(model.CodeTryAgain, "see the log of the node's pods", "%d of %d VMs run: %w",
				len(own), len(all), ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// vmManifest is a VM without disks: a lab boots weft's own guest.
func vmManifest(namespace, name, node string, binding map[string]any) map[string]any {
	nic := map[string]any{"name": "default"}
	maps.Copy(nic, binding)
	return map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"nodeSelector": map[string]any{"kubernetes.io/hostname": node},
			"domain": map[string]any{
				"resources": map[string]any{"requests": map[string]any{"memory": "128Mi"}},
				"devices":   map[string]any{"interfaces": []any{nic}},
			},
			"networks": []any{map[string]any{"name": "default", "pod": map[string]any{}}},
		},
	}
}

// testMigration migrates the first VM, where VMs can migrate.
func (s *Suite) testMigration(ctx context.Context, r *recorder, tested []vm) error {
	if !s.Disruptive || !s.cluster.Lab() {
		r.skip("migration: only in a lab, with --disruptive")
		return nil
	}
	if len(tested) == 0 {
		r.skip("migration: no VM of the cluster was tested")
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
		Phase          string
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
	v.phase = fields.Status.Phase
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
