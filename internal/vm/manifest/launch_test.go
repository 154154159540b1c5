// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

const launched = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: shop}
spec:
  template:
    metadata:
      labels: {app: db}
      annotations: {a: b}
    spec:
      nodeSelector: {kubernetes.io/hostname: node2}
      terminationGracePeriodSeconds: 5
      domain:
        cpu: {cores: 2, sockets: 2}
        memory: {guest: 256Mi}
        devices:
          interfaces:
          - {name: default, masquerade: {}}
          - {name: blue, bridge: {}}
      networks:
      - {name: default, pod: {}}
      - {name: blue, multus: {networkName: other/blue}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    resources: {requests: {memory: 100Mi}}
    devices: {}
`

// TestLaunch: ReadLaunch and ReadAll read each kind of manifest.
func TestLaunch(t *testing.T) {
	got, err := ReadAll([]byte(launched), Options{})
	if err != nil || len(got) != 2 {
		t.Fatalf("%d %v", len(got), err)
	}
	for i := range got {
		got[i].VM = model.VM{Namespace: got[i].VM.Namespace, Name: got[i].VM.Name}
	}
	want := []Launch{
		{
			VM: model.VM{Namespace: "shop", Name: "db"}, Labels: map[string]string{"app": "db"},
			Annotations: map[string]string{"a": "b"}, Node: "node2",
			CPUs: 4, Memory: 256, Networks: []LaunchNetwork{{"blue", "other/blue"}}, Grace: 5,
		},
		{VM: model.VM{Namespace: "default", Name: "web"}, Memory: 100, Grace: 30},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	one, err := ReadLaunch([]byte(launched), Options{Name: "web"})
	if err != nil || one.VM.Name != "web" {
		t.Errorf("%+v %v", one, err)
	}
	if none, err := ReadAll([]byte("apiVersion: v1\nkind: Pod\n"), Options{}); err != nil || len(none) > 0 {
		t.Errorf("%v %v", none, err)
	}
}

func TestGraceThatIsNoTime(t *testing.T) {
	for _, seconds := range []string{"-1", "9223372037"} {
		text := strings.Replace(launched, "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: "+seconds, 1)
		_, err := ReadAll([]byte(text), Options{})
		want := "spec.template.spec.terminationGracePeriodSeconds: " + seconds + " is not between 0 and 9223372036"
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s seconds: %v", seconds, err)
		}
	}
}

const withDisks = `apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: shop}
spec:
  hostname: www
  domain:
    devices:
      interfaces: [{name: default, masquerade: {}}]
      disks:
      - {name: root, disk: {bus: virtio}, bootOrder: 1, serial: s1}
      - {name: data}
      - {name: scratch, disk: {bus: scsi, readonly: true}}
      - {name: seed, cdrom: {bus: sata}}
      - {name: drive, disk: {bus: virtio}}
      - {name: secret, disk: {bus: virtio}}
  networks: [{name: default, pod: {}}]
  volumes:
  - {name: root, containerDisk: {image: "quay.io/containerdisks/fedora:latest"}}
  - {name: data, hostDisk: {path: /data/disk.img, type: DiskOrCreate, capacity: 1Gi}}
  - {name: scratch, emptyDisk: {capacity: 2Mi}}
  - {name: seed, cloudInitNoCloud: {userData: "#cloud-config", networkDataBase64: dmVyc2lvbjogMg==}}
  - {name: drive, cloudInitConfigDrive: {userDataBase64: IyE=}}
  - {name: secret, cloudInitNoCloud: {secretRef: {name: s}}}
  - {name: unseen, emptyDisk: {capacity: 2Mi}}
`

// TestDisks: the disks of a VM, with KubeVirt's defaults.
func TestDisks(t *testing.T) {
	l, err := ReadLaunch([]byte(withDisks), Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return fmt.Sprintf("spec.domain.devices.disks[%d]", i) }
	want := []Disk{
		{Name: "root", At: at(0), Kind: ContainerDisk, Bus: "virtio", BootOrder: 1, Serial: "s1"},
		{Name: "data", At: at(1), Kind: HostDisk, File: "/data/disk.img", Create: true, Size: 1 << 30, Bus: "sata"},
		{Name: "scratch", At: at(2), Kind: EmptyDisk, Size: 2 << 20, Bus: "scsi", ReadOnly: true},
		{
			Name: "seed", At: at(3), Kind: CloudInit, Bus: "sata", CDROM: true, ReadOnly: true,
			Seed: &Seed{"cidata", map[string]string{
				"meta-data": `{"instance-id":"web.shop","local-hostname":"www"}`, "user-data": "#cloud-config",
				"network-config": "version: 2",
			}},
		},
		{Name: "drive", At: at(4), Kind: CloudInit, Bus: "virtio", Seed: &Seed{"config-2", map[string]string{
			"openstack/latest/meta_data.json": `{"hostname":"www","instance_id":"web.shop","uuid":"web.shop"}`,
			"openstack/latest/user_data":      "#!",
		}}},
		{Name: "secret", At: at(5), Kind: CloudInit, Bus: "virtio"},
	}
	if d := cmp.Diff(want, l.Disks); d != "" {
		t.Error(d)
	}
}

// TestBadDisks: invalid disks, each with its message.
func TestBadDisks(t *testing.T) {
	for _, c := range []struct{ disk, volume, want string }{
		{
			"{name: a}", "{name: b, emptyDisk: {capacity: 1Mi}}",
			"spec.domain.devices.disks[0].Name: spec.domain.devices.disks[0].Name 'a' not found.",
		},
		{
			"{name: a, disk: {bus: usb}}", "{name: a, emptyDisk: {capacity: 1Mi}}",
			`spec.domain.devices.disks[0].disk.bus: bus "usb" is not supported`,
		},
		{
			"{name: a, cdrom: {bus: virtio}}", "{name: a, emptyDisk: {capacity: 1Mi}}",
			`spec.domain.devices.disks[0].cdrom.bus: bus "virtio" is not supported`,
		},
		{"{name: a}", "{name: a, emptyDisk: {}}", "spec.volumes[0].emptyDisk.capacity: it is required"},
		{"{name: a}", "{name: a, hostDisk: {type: Disk}}", "spec.volumes[0].hostDisk.path: it is required"},
		{
			"{name: a}", "{name: a, hostDisk: {path: /x, type: DiskOrCreate}}",
			"spec.volumes[0].hostDisk.capacity: it is required for a disk that may be created",
		},
		{
			"{name: a}", `{name: a, cloudInitNoCloud: {userDataBase64: "%"}}`,
			"spec.volumes[0].cloudInitNoCloud.userDataBase64: illegal base64 data at input byte 0",
		},
	} {
		text :=
			"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\nspec: {domain: {devices: {disks: [" +
				c.disk + "]}}, volumes: [" + c.volume + "]}\n"
		_, err := ReadLaunch([]byte(text), Options{})
		var f *model.Error
		if !errors.As(err, &f) || f.Msg != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	_, err := ReadLaunch([]byte(strings.Replace(withDisks, "name: root, disk", "name: ../x, disk", 1)), Options{})
	if err == nil {
		t.Error("a disk's name is a path")
	}
}
