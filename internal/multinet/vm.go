// SPDX-License-Identifier: Apache-2.0

package multinet

import "github.com/weft-net/weft/internal/model"

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
