// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/weft-net/weft/internal/model"
)

// kubelet returns what the test sets, over a real socket.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	answer *podresources.ListPodResourcesResponse
}

func (k *kubelet) List(
	context.Context, *podresources.ListPodResourcesRequest,
) (*podresources.ListPodResourcesResponse, error) {
	return k.answer, nil
}

func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "podres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	device := func(resource string, ids ...string) *podresources.ContainerDevices {
		return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
	}
	claim := &podresources.DynamicResource{
		ClaimName: "nic", ClaimNamespace: "app",
		ClaimResources: []*podresources.ClaimResource{
			{CdiDevices: []*podresources.CDIDevice{{Name: "example.com/net=eth7"}, {Name: "nonsense"}}},
			{DriverName: "sriov.example.com", PoolName: "n1", DeviceName: "vf-3"},
			{DriverName: "sriov.example.com", PoolName: "n1", DeviceName: "vf-1"},
			{DriverName: "sriov.example.com", PoolName: "other", DeviceName: "vf-9"},
			{DriverName: "gpu.example.com", PoolName: "n1", DeviceName: "gpu-0"},
		},
	}
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(
		s, &kubelet{answer: &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{
			{Namespace: "app", Name: "web", Containers: []*podresources.ContainerResources{
				{Devices: []*podresources.ContainerDevices{device("example.com/vf", "b"), device("example.com/vf", "a", "c")}},
				{
					Devices:          []*podresources.ContainerDevices{device("other", "x")},
					DynamicResources: []*podresources.DynamicResource{claim},
				},
			}},
			{
				Namespace: "app", Name: "db", Containers: []*podresources.ContainerResources{
					{Devices: []*podresources.ContainerDevices{device("other", "y")}},
				},
			},
		}}})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	web := model.PodRef{Namespace: "app", Name: "web"}
	got, err := Kubelet{Socket: path}.Of(t.Context(), web)
	want := map[string][]string{"example.com/vf": {"a", "b", "c"}, "other": {"x"}, "nic": {"eth7"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	// The devices that the drivers have published name the networks' resources, next to those of device plugins.
	var asked []string
	publishing := Kubelet{Socket: path, Devices: func(_ context.Context, driver string) ([]model.PublishedDevice, error) {
		if asked = append(asked, driver); driver != "sriov.example.com" {
			return nil, nil
		}
		return []model.PublishedDevice{
			{Pool: "n1", Name: "vf-1", ID: "0000:01:00.1", Resource: "example.com/vf"},
			{Pool: "n1", Name: "vf-2", ID: "0000:01:00.2", Resource: "example.com/vf"},
			{Pool: "n1", Name: "vf-3", ID: "0000:01:00.3", Resource: "example.com/rdma"},
			{Pool: "n1", Name: "vf-9", ID: "0000:01:00.9", Resource: "example.com/rdma"},
		}, nil
	}}
	got, err = publishing.Of(t.Context(), web)
	want["example.com/vf"], want["example.com/rdma"] = []string{"0000:01:00.1", "a", "b", "c"}, []string{"0000:01:00.3"}
	if d := cmp.Diff(want, got); d != "" || err != nil || len(asked) != 2 {
		t.Errorf("%v %v %s", asked, err, d)
	}
	publishing.Devices = func(context.Context, string) ([]model.PublishedDevice, error) { return nil, errors.New("away") }
	if got, err := publishing.Of(t.Context(), web); err == nil || got != nil {
		t.Errorf("%v %v", got, err)
	}
	if _, err := publishing.Of(t.Context(), model.PodRef{Namespace: "app", Name: "db"}); err != nil {
		// the pod has no claim
		t.Error(err)
	}
}

const stored = `{"Data":{"PodDeviceEntries":[
  {"PodUID":"u1","ContainerName":"c","ResourceName":"example.com/vf","DeviceIDs":{"0":["b"],"-1":["a"]},"AllocResp":""},
  {"PodUID":"u1","ContainerName":"d","ResourceName":"example.com/vf","DeviceIDs":["c"]},
  {"PodUID":"u2","ContainerName":"d","ResourceName":"example.com/vf","DeviceIDs":["z"]}],"RegisteredDevices":{}},"Checksum":1}`

func TestCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.WriteFile(path, []byte(stored), 0o600); err != nil {
		t.Fatal(err)
	}
	k := Kubelet{Socket: "/nonsuch", Checkpoint: path}
	got, err := k.Of(t.Context(), model.PodRef{Namespace: "app", Name: "web", UID: "u1"})
	if d := cmp.Diff(map[string][]string{"example.com/vf": {"a", "b", "c"}}, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	k.Checkpoint = "/nonsuch"
	if got, err := k.Of(t.Context(), model.PodRef{UID: "u1"}); len(got) > 0 || err != nil {
		t.Errorf("%v %v", got, err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(stored))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parse("file", b, "u1") })
}
