// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
	// migratable: KubeVirt migrates it.
	migratable bool
	// why it is not tested; empty: it is.
	why string
}

// testVMs tests VMs: their guests answer, from both nodes. It also boots VMs of its own.
func testVMs(ctx context.Context, s *Suite, r *recorder) error {
	if !s.VMs && !s.BootVMs {
		r.skip("not asked for: --vms, --boot-vms")
		return nil
	}
	var others, own []vm
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
		if own, err = s.bootVMs(ctx, r); err != nil {
			return err
		}
	}
	if len(others)+len(own) == 0 {
		r.skip("no VM runs")
		return nil
	}
	others, own = s.testable(r, others), s.testable(r, own)
	r.expect(ctx, s.vmChecks(others)...)
	r.expectWithin(ctx, bootTimeout, s.vmChecks(own)...) // KubeVirt's VMs run before their guests have booted
	return s.testMigration(ctx, r, others, own)
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
		Conditions     []struct{ Type, Status, Message string }
		MigrationState struct {
			TargetPod         string
			Completed, Failed bool
		}
	}
}

// condition returns the status and the message of a condition.
func (f vmFields) condition(name string) (status, message string) {
	for _, c := range f.Status.Conditions {
		if c.Type == name {
			return c.Status, c.Message
		}
	}
	return "", ""
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
	fields, err := f.instance(ctx, v.Namespace, name)
	if errors.Is(err, store.ErrNotFound) {
		v.why = "its VirtualMachineInstance is not there"
		return nil
	}
	if err != nil {
		return err
	}
	v.phase = fields.Status.Phase
	status, _ := fields.condition("LiveMigratable")
	v.migratable = status == "True"
	if !fields.runsIn(v.Pod) {
		v.why = "it does not run in pod " + v.Pod.Name
		return nil
	}
	fields.connect(v, f.cluster.Lab())
	return nil
}

// connect reads the binding, and which of the pod's addresses the guest answers. No guest of a bridge gets an IPv6 address.
// A guest behind KubeVirt's masquerade gets one, but no router advertisement: unless it configures a route itself, it
// cannot answer. weft's masquerade, in a lab, advertises itself.
func (f vmFields) connect(v *vm, lab bool) {
	only4 := func() { v.IPs = slices.DeleteFunc(slices.Clone(v.IPs), netip.Addr.Is6) }
	all := f.Spec.Domain.Devices.Interfaces
	switch {
	case len(all) > 0 && all[0].Bridge != nil:
		v.binding = "bridge"
		only4()
	case len(all) == 0 || all[0].Masquerade != nil: // masquerade is KubeVirt's default
		v.binding = "masquerade"
		if !lab {
			only4()
		}
		if len(all) > 0 && len(all[0].Ports) > 0 {
			v.why = "it forwards only some ports"
		}
	default:
		v.binding = all[0].Binding.Name
	}
}

// instance reads a VirtualMachineInstance.
func (f *fixture) instance(ctx context.Context, namespace, name string) (fields vmFields, err error) {
	kind := store.VirtualMachineInstances()
	o, err := f.cluster.Objects().Get(ctx, kind, kind.Key(namespace, name))
	if err == nil {
		err = json.Unmarshal(o.Raw, &fields)
	}
	if err != nil {
		return fields, fmt.Errorf("VM %s/%s: %w", namespace, name, err)
	}
	return fields, nil
}
