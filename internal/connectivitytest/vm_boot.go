// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// bootTimeout is the time for the boot of the test's VMs, which may be emulated.
const bootTimeout = 3 * time.Minute

// Paths of the guest in its image, and its kernel's command line: those of weft's own guest (weft vm image), which answers
// on guestPort.
const (
	guestKernel = "/boot/vmlinuz"
	guestInitrd = "/boot/initrd"
	guestArgs   = "console=ttyS0 quiet panic=-1 no_timer_check weft.answer="
	guestPort   = 7007
)

// bindings are the bindings that connect a VM to the network of pods, as an interface of a VirtualMachineInstance has them.
func bindings(names ...string) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, name := range names {
		switch name {
		case "masquerade", "bridge":
			out[name] = map[string]any{name: map[string]any{}}
		default:
			out[name] = map[string]any{"binding": map[string]any{"name": name}}
		}
	}
	return out
}

// ownBindings returns the bindings with which the cluster's VMs can run. Without one the test boots none, and why is the
// reason.
func (s *Suite) ownBindings(ctx context.Context, r *recorder) (out map[string]map[string]any, why string, err error) {
	if s.cluster.Lab() {
		if err := s.cluster.RunsVMs(ctx); err != nil {
			return nil, err.Error(), nil
		}
		return bindings("masquerade", "bridge", "weft-direct"), "", nil
	}
	if s.VMImage == "" {
		return nil, "--vm-image names no image of a guest (weft vm image --archive)", nil
	}
	all, err := s.cluster.Objects().List(ctx, store.KubeVirts())
	if err != nil {
		return nil, "", err
	}
	if len(all) == 0 {
		return nil, "KubeVirt is not installed", nil
	}
	names, others, err := registered(all[0])
	for _, name := range others {
		r.skip("VM with %s: KubeVirt's configuration has no networkAttachmentDefinition for this binding, so that it connects no VM to the pod network", name)
	}
	return bindings(names...), "", err
}

// registered returns the bindings of KubeVirt's configuration: its own two, and plugins. Others are plugins for networks
// that a CNI plugin of their own connects, as macvtap is.
func registered(o store.Object) (names, others []string, err error) {
	var fields struct {
		Spec struct {
			Configuration struct {
				Network struct {
					PermitBridgeInterfaceOnPodNetwork *bool
					Binding                           map[string]struct{ NetworkAttachmentDefinition, SidecarImage string }
				}
			}
		}
	}
	if err := json.Unmarshal(o.Raw, &fields); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", o.Key, err)
	}
	network := fields.Spec.Configuration.Network
	names = []string{"masquerade"}
	if network.PermitBridgeInterfaceOnPodNetwork == nil || *network.PermitBridgeInterfaceOnPodNetwork {
		names = append(names, "bridge")
	}
	for name, plugin := range network.Binding {
		if plugin.NetworkAttachmentDefinition != "" || plugin.SidecarImage != "" {
			names = append(names, name)
		} else {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return names, others, nil
}

// bootVMs starts a VM with each binding, and returns those that run. One that does not is a row that fails.
func (s *Suite) bootVMs(ctx context.Context, r *recorder) ([]vm, error) {
	all, why, err := s.ownBindings(ctx, r)
	if err != nil {
		return nil, err
	}
	if why != "" {
		r.skip("VMs of the test: %s", why)
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(all))
	for i, name := range names {
		if err := s.create(ctx, store.VirtualMachineInstances(), s.vmManifest(name, i, all[name])); err != nil {
			return nil, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	own, err := s.awaitVMs(limited, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.ContainsFunc(own, func(v vm) bool { return v.binding == name }) {
			continue
		}
		why := s.whyNot(ctx, name)
		if strings.Contains(why, noDummy) {
			r.skip("VM with %s: KubeVirt: %s: the node's kernel has no dummy interfaces (modprobe dummy)", name, noDummy)
			continue
		}
		r.result.Rows = append(r.result.Rows, Row{
			Name: fmt.Sprintf("VM %s/%s (%s) runs", s.namespace, name, name), Attempts: 1, Error: why,
		})
	}
	return own, nil
}

// noDummy is KubeVirt's error about a kernel without dummy interfaces, which its bridge binding needs.
const noDummy = "LinkAdd: operation not supported"

// awaitVMs waits until the test's VMs run, or have failed, and returns those that run.
func (s *Suite) awaitVMs(ctx context.Context, names []string) (own []vm, err error) {
	for {
		running, err := s.runningVMs(ctx)
		if err == nil {
			own = slices.DeleteFunc(running, func(v vm) bool { return v.Namespace != s.namespace || v.phase != "Running" })
			if len(own)+s.failedVMs(ctx, names) == len(names) {
				return own, nil
			}
		}
		if ctx.Err() != nil {
			return own, nil
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// failedVMs counts VMs that will not run.
func (s *Suite) failedVMs(ctx context.Context, names []string) (n int) {
	for _, name := range names {
		if f, err := s.instance(ctx, s.namespace, name); err == nil && f.Status.Phase == "Failed" {
			n++
		}
	}
	return n
}

// whyNot returns what KubeVirt says about a VM that does not run.
func (s *Suite) whyNot(ctx context.Context, name string) string {
	f, err := s.instance(ctx, s.namespace, name)
	if err != nil {
		return err.Error()
	}
	text := []string{fmt.Sprintf("its phase is %q", f.Status.Phase)}
	for _, c := range f.Status.Conditions {
		if (c.Type == "Synchronized" || c.Type == "PodScheduled") && c.Status == "False" && c.Message != "" {
			text = append(text, c.Message)
		}
	}
	said, err := s.warnings(ctx, name)
	if err != nil {
		said = append(said, "its events: "+err.Error())
	}
	return strings.Join(append(text, said...), ": ")
}

// warnings returns the messages of warnings about a VM and its pod.
func (s *Suite) warnings(ctx context.Context, vm string) (out []string, err error) {
	all, err := s.cluster.Objects().List(ctx, events())
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		var e struct {
			Type, Message  string
			InvolvedObject struct{ Name string }
		}
		if o.Key.Namespace != s.namespace {
			continue
		}
		if err := json.Unmarshal(o.Raw, &e); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Key, err)
		}
		about := e.InvolvedObject.Name == vm || strings.HasPrefix(e.InvolvedObject.Name, "virt-launcher-"+vm+"-")
		if about && e.Type == "Warning" && !slices.Contains(out, e.Message) {
			out = append(out, e.Message)
		}
	}
	return out, nil
}

// vmManifest is the i-th VM of the test, without disks. A lab boots weft's own guest by itself; KubeVirt boots it from its
// image, on any of the test's nodes, so that it can migrate.
func (s *Suite) vmManifest(name string, i int, binding map[string]any) map[string]any {
	nic := map[string]any{"name": "default"}
	maps.Copy(nic, binding)
	node := s.nodes[i%len(s.nodes)]
	devices := map[string]any{"interfaces": []any{nic}}
	domain := map[string]any{"devices": devices}
	spec := map[string]any{
		"domain": domain, "networks": []any{map[string]any{"name": "default", "pod": map[string]any{}}},
	}
	meta := map[string]any{"namespace": s.namespace, "name": name}
	if s.cluster.Lab() {
		domain["resources"] = map[string]any{"requests": map[string]any{"memory": "128Mi"}}
		spec["nodeSelector"] = map[string]any{hostnameLabel: node}
	} else {
		devices["autoattachGraphicsDevice"], devices["autoattachMemBalloon"] = false, false
		domain["memory"] = map[string]any{"guest": "192Mi"} // glossary: KubeVirt
		domain["firmware"] = map[string]any{"kernelBoot": map[string]any{
			"kernelArgs": guestArgs + strconv.Itoa(guestPort),
			"container": map[string]any{
				"image": s.VMImage, "imagePullPolicy": "IfNotPresent", "kernelPath": guestKernel, "initrdPath": guestInitrd,
			},
		}}
		spec["terminationGracePeriodSeconds"] = 0
		spec["affinity"] = map[string]any{"nodeAffinity": map[string]any{
			"requiredDuringSchedulingIgnoredDuringExecution":  map[string]any{"nodeSelectorTerms": []any{onNodes(s.nodes...)}},
			"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{"weight": 1, "preference": onNodes(node)}},
		}}
		meta["annotations"] = map[string]string{"kubevirt.io/allow-pod-bridge-network-live-migration": ""}
	}
	return map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta, "spec": spec,
	}
}

const hostnameLabel = "kubernetes.io/hostname"

// onNodes is a term of node affinity.
func onNodes(names ...string) map[string]any {
	return map[string]any{"matchExpressions": []any{
		map[string]any{"key": hostnameLabel, "operator": "In", "values": names},
	}}
}
