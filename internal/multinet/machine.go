// SPDX-License-Identifier: Apache-2.0

package multinet

import "github.com/weft-net/weft/internal/model"

// What a pod says of the virtual machine that it is there for. The first two are KubeVirt's: it writes them on the pods
// in which machines run, and the annotations of a machine come along.
const (
	// DomainKey is the machine's name.
	DomainKey = "kubevirt.io/domain"
	// MigrationKey is on a pod into which a machine that runs elsewhere is to migrate.
	MigrationKey = "kubevirt.io/migrationJobName"
	// KeepKey says whether the machine's addresses stay with it: "true" or "false".
	KeepKey = "weft.dev/keep-vm-address"
)

// machine notes for which virtual machine the pod is there.
func (w *resolving) machine(o *model.Origin) error {
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
	case model.KeepWhere:
		o.Keep = w.r.Keep
		return nil
	default:
		return model.Faultf(model.CodeInvalidConf, `"true" or "false"`, "annotation %s %q is neither true nor false", KeepKey,
			string(o.Keep))
	}
}
