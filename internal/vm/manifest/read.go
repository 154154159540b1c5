// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/kubevirt"
)

// Options are what of the cluster's KubeVirt object counts here, and which machine is meant.
type Options struct {
	// Name chooses one of several machines in a file.
	Name string
	// Bindings are the binding plugins by name: their domainAttachmentType, tap or managedTap.
	Bindings map[string]string
	// Default is the binding of a machine that names neither interface nor network: bridge, unless it is set.
	Default model.VMBinding
}

// Read reads a file of manifests, YAML or JSON, that has one machine in it or one of the name that was chosen; other
// kinds are stepped over. Errors are *model.Fault.
func Read(data []byte, o Options) (model.VM, error) {
	d, err := one(data, o)
	if err != nil {
		return model.VM{}, err
	}
	return d.machine(o)
}

// one finds the machine that is meant.
func one(data []byte, o Options) (document, error) {
	found, err := all(data, o.Name)
	switch {
	case err != nil:
		return document{}, err
	case len(found) == 0 && o.Name != "":
		return document{}, model.Faultf(model.CodeInvalidConf, "", "manifest: no virtual machine %q in it", o.Name)
	case len(found) == 0:
		return document{}, model.Faultf(model.CodeInvalidConf,
			"give a VirtualMachineInstance or VirtualMachine of kubevirt.io/v1 or v1alpha3",
			"manifest: no virtual machine in it")
	case len(found) > 1:
		var names []string
		for _, d := range found {
			names = append(names, d.meta.Name)
		}
		return document{}, model.Faultf(model.CodeInvalidConf, "choose one by its name",
			"manifest: several virtual machines in it: %s", strings.Join(names, ", "))
	}
	return found[0], nil
}

// all are the machines of a file, or those of a name.
func all(data []byte, name string) (found []document, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, model.Faultf(model.CodeDecode, "", "manifest: %w", err)
		}
		doc, ours, err := parse(text)
		if err != nil {
			return nil, err
		}
		if ours && (name == "" || doc.meta.Name == name) {
			found = append(found, doc)
		}
	}
}

// document is one machine's manifest.
type document struct {
	meta     metav1.ObjectMeta
	instance kubevirt.VirtualMachineInstanceSpec
	// pod are the labels and annotations that the pod will have.
	labels, annotations map[string]string
	status              kubevirt.VirtualMachineInstanceStatus
	path                *field.Path
}

// parse reads one document; ours is false when it is of another kind.
func parse(text []byte) (d document, ours bool, err error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return d, false, model.Faultf(model.CodeDecode, "", "manifest: %w", err)
	}
	group, version, _ := strings.Cut(kind.APIVersion, "/")
	if group != "kubevirt.io" || kind.Kind != "VirtualMachineInstance" && kind.Kind != "VirtualMachine" {
		return d, false, nil
	}
	if version != "v1" && version != "v1alpha3" {
		return d, false, model.Faultf(model.CodeInvalidConf, "write kubevirt.io/v1", "apiVersion %q of %s is not understood",
			kind.APIVersion, kind.Kind)
	}
	if kind.Kind == "VirtualMachineInstance" {
		var vmi kubevirt.VirtualMachineInstance
		err = yaml.Unmarshal(text, &vmi)
		d = document{
			meta: vmi.ObjectMeta, instance: vmi.Spec, labels: vmi.Labels, annotations: vmi.Annotations, status: vmi.Status,
			path: field.NewPath("spec"),
		}
	} else {
		var vm kubevirt.VirtualMachine
		err = yaml.Unmarshal(text, &vm)
		d = document{meta: vm.ObjectMeta, path: field.NewPath("spec", "template", "spec")}
		if t := vm.Spec.Template; t != nil {
			d.instance, d.labels, d.annotations = t.Spec, t.ObjectMeta.Labels, t.ObjectMeta.Annotations
		} else if err == nil {
			return d, false, model.Faultf(model.CodeInvalidConf, "", "spec.template: it is missing")
		}
	}
	if err != nil {
		return d, false, model.Faultf(model.CodeDecode, "", "%s: %w", kind.Kind, err)
	}
	return d, true, nil
}

// machine checks everything and turns it into the model's words.
func (d document) machine(o Options) (model.VM, error) {
	vm := model.VM{
		Namespace: d.meta.Namespace, Name: d.meta.Name, UID: string(d.meta.UID), Path: d.path.String(),
		Queues: d.queues(), Transitional: d.transitional(), Owner: d.owner(), Mesh: d.mesh(),
		Hostname: d.instance.Hostname, Subdomain: d.instance.Subdomain,
	}
	if vm.Namespace == "" {
		vm.Namespace = metav1.NamespaceDefault
	}
	if vm.Hostname == "" {
		vm.Hostname = hostname(vm.Name)
	}
	if err := model.CheckName("metadata.name", vm.Name); err != nil {
		return model.VM{}, err
	}
	if err := model.CheckName("metadata.namespace", vm.Namespace); err != nil {
		return model.VM{}, err
	}
	if !d.migratesByUnix() {
		const direct, block = 49152, 49153 // libvirt's
		vm.MigrationPorts = []uint16{direct, block}
	}
	d.defaults(o)
	c := &checker{spec: &d.instance, path: d.path, options: o}
	if err := c.check(); err != nil {
		return model.VM{}, err
	}
	for i := range d.instance.Domain.Devices.Interfaces {
		vm.Interfaces = append(vm.Interfaces, d.nic(i, o))
	}
	return vm, nil
}

// hostname is what a machine is called that says nothing of that: its name's first label.
func hostname(name string) string {
	label, _, _ := strings.Cut(name, ".")
	return label[:min(len(label), validation.DNS1123LabelMaxLength)]
}

// defaults gives a machine that names nothing what KubeVirt gives it: the pod's network.
func (d *document) defaults(o Options) {
	dev := &d.instance.Domain.Devices
	if auto := dev.AutoattachPodInterface; auto != nil && !*auto || len(d.instance.Networks)+len(dev.Interfaces) > 0 {
		return
	}
	nic := kubevirt.DefaultBridgeNetworkInterface()
	if o.Default == model.VMMasquerade {
		nic = kubevirt.DefaultMasqueradeNetworkInterface()
	}
	dev.Interfaces, d.instance.Networks = []kubevirt.Interface{*nic}, []kubevirt.Network{*kubevirt.DefaultPodNetwork()}
}

// queues is one for each of the machine's processors, where they are asked for.
func (d document) queues() int {
	const most = 256 // MAX_TAP_QUEUES
	dom := d.instance.Domain
	if q := dom.Devices.NetworkInterfaceMultiQueue; q == nil || !*q {
		return 0
	}
	n := 1
	if cpu := dom.CPU; cpu != nil && cpu.Cores+cpu.Sockets+cpu.Threads > 0 {
		for _, part := range []uint32{cpu.Cores, cpu.Sockets, cpu.Threads} {
			n = min(n*max(1, int(min(part, most))), most)
		}
	} else if limit, ok := dom.Resources.Limits["cpu"]; ok {
		n = int(min(limit.Value(), most))
	} else if request, ok := dom.Resources.Requests["cpu"]; ok {
		n = int(min(request.Value(), most))
	}
	return max(n, 1)
}

// owner is whom the hypervisor runs as: a manifest that no cluster has touched gets what KubeVirt gives new machines.
func (d document) owner() uint32 {
	const qemu = 107
	_, nonroot := d.annotations[kubevirt.DeprecatedNonRootVMIAnnotation]
	switch {
	case d.status.RuntimeUser > 0 && d.status.RuntimeUser < 1<<32-1:
		return uint32(d.status.RuntimeUser)
	case nonroot, d.status.Phase == "":
		return qemu
	}
	return 0
}

func (d document) transitional() bool {
	t := d.instance.Domain.Devices.UseVirtioTransitional
	return t != nil && *t
}

func (d document) mesh() bool {
	const key = "sidecar.istio.io/inject"
	return strings.EqualFold(d.annotations[key], "true") || strings.EqualFold(d.labels[key], "true")
}

func (d document) migratesByUnix() bool {
	_, annotated := d.annotations[kubevirt.MigrationTransportUnixAnnotation]
	return annotated || d.status.MigrationTransport == kubevirt.MigrationTransportUnix
}

// at is a path in the form that messages have.
func at(p *field.Path, format string, args ...any) string {
	return fmt.Sprintf("%s: %s", p, fmt.Sprintf(format, args...))
}
