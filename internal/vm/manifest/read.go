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

// Options select a VM and have settings of the cluster's KubeVirt object.
type Options struct {
	// Name selects one of several VMs in a file.
	Name string
	// Bindings maps binding plugins to their domainAttachmentType, tap or managedTap.
	Bindings map[string]string
	// Default is the binding of a VM without interfaces and networks; it defaults to bridge.
	Default model.VMBinding
}

// Read reads the VM of a file of manifests, YAML or JSON, which must have one VM or one with the selected name; other
// kinds are ignored. Errors are *model.Error.
func Read(data []byte, o Options) (model.VM, error) {
	d, err := one(data, o)
	if err != nil {
		return model.VM{}, err
	}
	return d.vm(o)
}

// one returns the selected VM.
func one(data []byte, o Options) (document, error) {
	found, err := all(data, o.Name)
	switch {
	case err != nil:
		return document{}, err
	case len(found) == 0 && o.Name != "":
		return document{}, model.Errorf(model.CodeInvalidConf, "", "manifest: no virtual machine %q in it", o.Name)
	case len(found) == 0:
		return document{}, model.Errorf(model.CodeInvalidConf,
			"it needs a VirtualMachineInstance or VirtualMachine of kubevirt.io/v1 or v1alpha3",
			"manifest: no virtual machine in it")
	case len(found) > 1:
		var names []string
		for _, d := range found {
			names = append(names, d.meta.Name)
		}
		return document{}, model.Errorf(model.CodeInvalidConf, "choose one by its name",
			"manifest: multiple virtual machines in it: %s", strings.Join(names, ", "))
	}
	return found[0], nil
}

// all returns the VMs of a file, or those with a name.
func all(data []byte, name string) (found []document, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, model.Errorf(model.CodeDecode, "", "manifest: %w", err)
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

// document is the manifest of one VM.
type document struct {
	meta     metav1.ObjectMeta
	instance kubevirt.VirtualMachineInstanceSpec
	// labels and annotations are those for the pod.
	labels, annotations map[string]string
	status              kubevirt.VirtualMachineInstanceStatus
	path                *field.Path
}

// parse parses one document; ours is false if it is of another kind.
func parse(text []byte) (d document, ours bool, err error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return d, false, model.Errorf(model.CodeDecode, "", "manifest: %w", err)
	}
	group, version, _ := strings.Cut(kind.APIVersion, "/")
	if group != "kubevirt.io" || kind.Kind != "VirtualMachineInstance" && kind.Kind != "VirtualMachine" {
		return d, false, nil
	}
	if version != "v1" && version != "v1alpha3" {
		return d, false, model.Errorf(model.CodeInvalidConf, "write kubevirt.io/v1", "apiVersion %q of %s is not understood",
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
			return d, false, model.Errorf(model.CodeInvalidConf, "", "spec.template: it is missing")
		}
	}
	if err != nil {
		return d, false, model.Errorf(model.CodeDecode, "", "%s: %w", kind.Kind, err)
	}
	return d, true, nil
}

// vm checks the manifest and converts it to the model.
func (d document) vm(o Options) (model.VM, error) {
	vm := model.VM{
		Namespace: d.meta.Namespace, Name: d.meta.Name, UID: string(d.meta.UID), Path: d.path.String(),
		Queues: d.queues(), Transitional: d.transitional(), Owner: d.owner(), ServiceMesh: d.mesh(),
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
		const direct, block = 49152, 49153 // libvirt's migration ports
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

// hostname returns the hostname of a VM whose manifest has none: the first label of its name.
func hostname(name string) string {
	label, _, _ := strings.Cut(name, ".")
	return label[:min(len(label), validation.DNS1123LabelMaxLength)]
}

// defaults adds KubeVirt's default, the pod network, to a VM without networks.
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

// queues returns one queue per CPU if multi-queue is enabled.
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

// owner returns the user that the hypervisor runs as. Without a status it is that of new VMs in KubeVirt.
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

// at formats an error message with a path.
func at(p *field.Path, format string, args ...any) string {
	return fmt.Sprintf("%s: %s", p, fmt.Sprintf(format, args...))
}
