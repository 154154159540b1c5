// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/network/admitter"
	"kubevirt.io/kubevirt/pkg/network/cache"
	driver "kubevirt.io/kubevirt/pkg/network/driver/netlink"
	"kubevirt.io/kubevirt/pkg/network/driver/nmstate"
	"kubevirt.io/kubevirt/pkg/network/driver/procsys"
	"kubevirt.io/kubevirt/pkg/network/driver/virtchroot"
	"kubevirt.io/kubevirt/pkg/network/istio"
	"kubevirt.io/kubevirt/pkg/network/multus"
	"kubevirt.io/kubevirt/pkg/network/netns"
	network "kubevirt.io/kubevirt/pkg/network/setup"
	"kubevirt.io/kubevirt/pkg/network/setup/netpod"
	"kubevirt.io/kubevirt/pkg/network/setup/netpod/masquerade"
	"kubevirt.io/kubevirt/pkg/network/vmispec"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/api"
	converter "kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/converter/network"
	"kubevirt.io/kubevirt/pkg/vmitrait"
)

// gates is a cluster configuration with all features that weft supports enabled.
type gates struct{}

func (gates) IsBridgeInterfaceOnPodNetworkEnabled() bool { return true }
func (gates) PasstBindingEnabled() bool                  { return true }
func (gates) NetworkDevicesWithDRAGateEnabled() bool     { return true }
func (gates) PortRangesSpecGateEnabled() bool            { return true }

func admit(in io.Reader, out io.Writer) error {
	var vmis []v1.VirtualMachineInstance
	if err := json.NewDecoder(in).Decode(&vmis); err != nil {
		return err
	}
	said := make([][]metav1.StatusCause, len(vmis))
	for i := range vmis {
		said[i] = admitter.Validate(field.NewPath("spec"), &vmis[i].Spec, gates{})
	}
	return json.NewEncoder(out).Encode(said)
}

// annotate prints the pod's annotation for Multus.
func annotate(vmi *v1.VirtualMachineInstance) error {
	text, err := multus.GenerateCNIAnnotation(vmi.Namespace, vmi.Spec.Domain.Devices.Interfaces,
		vmi.Spec.Networks, plugins())
	if err != nil {
		return err
	}
	_, err = fmt.Println(text)
	return err
}

// fallbackNetLink is KubeVirt's netlink driver. If the kernel has no dummy interfaces, a bridge without ports is used
// instead, as in weft.
type fallbackNetLink struct {
	driver.NetLink
	procsys.ProcSys
	virtchroot.VirtCHRoot
}

func (k fallbackNetLink) LinkAdd(link netlink.Link) error {
	err := k.NetLink.LinkAdd(link)
	if link.Type() == "dummy" && errors.Is(err, unix.EOPNOTSUPP) {
		return k.NetLink.LinkAdd(&netlink.Bridge{LinkAttrs: *link.Attrs()})
	}
	return err
}

// phase1 is for a VMI that starts, plug for a running one.
func phase1(vmi *v1.VirtualMachineInstance, args []string) error {
	return setup(vmi, network.FilterNetsForVMStartup(vmi), args)
}

func plug(vmi *v1.VirtualMachineInstance, args []string) error {
	return setup(vmi, network.FilterNetsForLiveUpdate(vmi), args)
}

// setup does the same as NetConf.Setup, which does not allow to replace the driver.
func setup(vmi *v1.VirtualMachineInstance, networks []v1.Network, args []string) error {
	pid, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	owner := 0
	if vmitrait.IsNonRoot(vmi) {
		owner = 107
	}
	options := masquerade.WithLegacyMigrationPorts()
	if vmi.Status.MigrationTransport == v1.MigrationTransportUnix {
		options = masquerade.WithIstio(istio.ProxyInjectionEnabled(vmi))
	}
	nat := masquerade.New(masquerade.WithIstio(istio.ProxyInjectionEnabled(vmi)),
		masquerade.WithPortRangesSpecGateEnabled(true), options)
	states := network.NewConfigStateCache(string(vmi.UID), cache.CacheCreator{})
	pod := netpod.NewNetPod(networks, vmispec.FilterInterfacesByNetworks(vmi.Spec.Domain.Devices.Interfaces, networks),
		string(vmi.UID), pid, owner,
		int(converter.NetworkQueuesCapacity(vmi)),
		netpod.NewState(&states, netns.New(pid)),
		netpod.WithNMStateAdapter(nmstate.New(nmstate.WithAdapter(fallbackNetLink{}))),
		netpod.WithMasqueradeAdapter(nat), netpod.WithBindingPlugins(plugins()),
		netpod.WithVMIIfaceStatuses(vmi.Status.Interfaces))
	return pod.Setup()
}

// status prints status.interfaces of a VMI; the domain's interfaces are in a file.
func status(vmi *v1.VirtualMachineInstance, args []string) error {
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var devices struct {
		Interfaces []api.Interface `xml:"interface"`
	}
	if err := xml.Unmarshal(text, &devices); err != nil {
		return err
	}
	var d api.Domain
	d.Spec.Devices.Interfaces = devices.Interfaces
	if err := network.NewNetStat().UpdateStatus(vmi, &d); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(vmi.Status.Interfaces)
}
