// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Annotations of a pod about its virtual machine. The first two are KubeVirt's: it sets them on the pods of VMs, and
// copies the annotations of the VM.
const (
	// DomainKey has the VM's name.
	DomainKey = "kubevirt.io/domain"
	// MigrationKey is on the target pod of a live migration.
	MigrationKey = "kubevirt.io/migrationJobName"
	// KeepKey is whether the VM's addresses stay with it: "true" or "false".
	KeepKey = "weft.dev/keep-vm-address"
)

// readVM records the virtual machine of the pod.
func (w *resolving) readVM(o *model.Origin) error {
	name := w.pod.Annotations[DomainKey]
	if name == "" {
		return nil
	}
	if err := model.CheckName("annotation "+DomainKey+":", name); err != nil {
		return err
	}
	o.VM = &model.VMRef{Namespace: w.pod.Namespace, Name: name}
	o.Incoming = w.pod.Annotations[MigrationKey] != ""
	switch o.Keep = model.KeepAddress(w.pod.Annotations[KeepKey]); o.Keep {
	case model.KeepAlways, model.KeepNever:
		return nil
	case model.KeepIfSupported:
		o.Keep = w.r.Keep
		return nil
	default:
		return model.Errorf(model.CodeInvalidConf, `"true" or "false"`, "annotation %s %q is neither true nor false", KeepKey,
			string(o.Keep))
	}
}

// keepGuest requires that the addresses of the pod network stay with a VM that migrates into the pod, if its guest has them
// itself, by weft-direct: such a guest does not learn of others, and would reach nothing with those that it has.
func keepGuest(all []Attachment) {
	first := all[0].Request
	if first.Origin == nil || !first.Incoming() || first.KeepAddress() != model.KeepIfSupported {
		return
	}
	for _, a := range all[1:] {
		conf := a.Network.Plugins[0]
		if conf.Type != plugin.DirectType {
			continue
		}
		names := make([]string, 0, len(all))
		for _, other := range all {
			names = append(names, other.Request.IfName)
		}
		links := plugin.DirectLinks(conf)
		i := slices.IndexFunc(links, func(link string) bool { return slices.Contains(names, link) })
		if i >= 0 && links[i] == first.IfName {
			first.Origin.Keep = model.KeepAlways
		}
	}
}

// addGuestMAC lets a pod have the MAC that its VM requests for KubeVirt's bridge binding on the pod network. No plugin
// learns it from KubeVirt; the guest sends with it, and the source guard permits and the node's neighbor entries have the pod's MAC only.
func (w *resolving) addGuestMAC(ctx context.Context, o *model.Origin) error {
	from, ok := w.r.Cluster.(VMs)
	own := func(kv [2]string) bool { return kv[0] == plugin.HardwareAddr }
	if !ok || o.VM == nil || slices.ContainsFunc(o.Annotations, own) {
		return nil
	}
	vm, err := from.VMInstance(ctx, o.VM.Namespace, o.VM.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if mac := bridgedMAC(vm); mac != "" {
		o.Annotations = append(o.Annotations, [2]string{plugin.HardwareAddr, mac})
	}
	return nil
}

// bridgedMAC returns the MAC that a VM requests on the pod network for an interface with the bridge binding, empty if it
// requests none.
func bridgedMAC(o store.Object) string {
	var vm struct {
		Spec struct {
			Domain struct {
				Devices struct {
					Interfaces []struct {
						Name       string    `json:"name"`
						Bridge     *struct{} `json:"bridge"`
						MacAddress string    `json:"macAddress"`
					} `json:"interfaces"`
				} `json:"devices"`
			} `json:"domain"`
			Networks []struct {
				Name string    `json:"name"`
				Pod  *struct{} `json:"pod"`
			} `json:"networks"`
		} `json:"spec"`
	}
	if json.Unmarshal(o.Raw, &vm) != nil {
		return "" // KubeVirt has validated it
	}
	for _, n := range vm.Spec.Networks {
		for _, i := range vm.Spec.Domain.Devices.Interfaces {
			if n.Pod == nil || i.Name != n.Name || i.Bridge == nil {
				continue
			}
			if mac, err := net.ParseMAC(i.MacAddress); err == nil {
				return mac.String()
			}
		}
	}
	return ""
}
