// SPDX-License-Identifier: Apache-2.0

// Package podresources reads which devices the kubelet allocated to a pod: from its pod-resources socket or, where
// that does not exist, from the device manager's checkpoint.
package podresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/weft-net/weft/internal/model"
)

// The kubelet's paths.
const (
	Socket     = "/var/lib/kubelet/pod-resources/kubelet.sock"
	Checkpoint = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
)

const (
	askLimit = 10 * time.Second
	// mostAnswer fits a response about some thousand containers.
	mostAnswer = 16 << 20 // bytes
)

// Kubelet has the paths of a node's kubelet, as the agent sees them.
type Kubelet struct {
	Socket     string
	Checkpoint string
	// Devices returns the network devices that a DRA driver has published; nil where there is no cluster.
	Devices func(ctx context.Context, driver string) ([]model.PublishedDevice, error)
}

// Of returns the devices of a pod by resource name, sorted: those of device plugins, and those of its resource claims
// under the name that their driver has published. A claim's devices are also listed under the claim's name, as Multus
// up to 4.3 does.
func (k Kubelet) Of(ctx context.Context, pod model.PodRef) (map[string][]string, error) {
	if _, err := os.Stat(k.Socket); errors.Is(err, fs.ErrNotExist) {
		return k.stored(pod)
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+k.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of the node that only root may connect to
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer)), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("pod-resources socket %s: %w", k.Socket, err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("pod-resources socket %s: %w", k.Socket, err)
	}
	devices := ofAnswer(answer, pod)
	if err := k.claimed(ctx, answer, pod, devices); err != nil {
		return nil, err
	}
	return sorted(devices), nil
}

func ofAnswer(answer *podresources.ListPodResourcesResponse, pod model.PodRef) map[string][]string {
	devices := map[string][]string{}
	for _, p := range answer.GetPodResources() {
		if p.GetNamespace() != pod.Namespace || p.GetName() != pod.Name {
			continue
		}
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				devices[d.GetResourceName()] = append(devices[d.GetResourceName()], d.GetDeviceIds()...)
			}
			for _, claim := range c.GetDynamicResources() {
				for _, r := range claim.GetClaimResources() {
					devices[claim.GetClaimName()] = append(devices[claim.GetClaimName()], idsOf(r)...)
				}
			}
		}
	}
	return devices
}

// claimed adds the devices of the pod's claims by the resource names that their drivers have published.
func (k Kubelet) claimed(
	ctx context.Context, answer *podresources.ListPodResourcesResponse, pod model.PodRef, devices map[string][]string,
) error {
	drivers := map[string][]model.PublishedDevice{}
	for r := range claims(answer, pod) {
		driver := r.GetDriverName()
		if driver == "" || k.Devices == nil {
			continue // a kubelet before 1.34, or no cluster
		}
		if _, asked := drivers[driver]; !asked {
			var err error
			if drivers[driver], err = k.Devices(ctx, driver); err != nil {
				return err
			}
		}
		for _, d := range drivers[driver] {
			if d.Pool == r.GetPoolName() && d.Name == r.GetDeviceName() {
				devices[d.Resource] = append(devices[d.Resource], d.ID)
			}
		}
	}
	return nil
}

// claims yields the devices that a pod has claimed, once for each of its containers.
func claims(answer *podresources.ListPodResourcesResponse, pod model.PodRef) iter.Seq[*podresources.ClaimResource] {
	return func(yield func(*podresources.ClaimResource) bool) {
		for _, p := range answer.GetPodResources() {
			if p.GetNamespace() != pod.Namespace || p.GetName() != pod.Name {
				continue
			}
			for _, c := range p.GetContainers() {
				for _, claim := range c.GetDynamicResources() {
					for _, r := range claim.GetClaimResources() {
						if !yield(r) {
							return
						}
					}
				}
			}
		}
	}
}

// idsOf returns the device IDs of a claim: the part after "vendor/class=" in their CDI names.
func idsOf(r *podresources.ClaimResource) []string {
	var ids []string
	for _, d := range r.GetCdiDevices() {
		if _, id, ok := strings.Cut(d.GetName(), "="); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// sorted sorts each resource's devices and removes duplicates.
func sorted(devices map[string][]string) map[string][]string {
	for name, ids := range devices {
		slices.Sort(ids)
		devices[name] = slices.Compact(ids)
	}
	return devices
}

// checkpoint is the part of the device manager's file that is read.
type checkpoint struct {
	Data struct {
		PodDeviceEntries []struct {
			PodUID       string
			ResourceName string
			DeviceIDs    json.RawMessage // a list, or lists by NUMA node
		}
	}
}

// stored returns the devices of a pod from the checkpoint.
func (k Kubelet) stored(pod model.PodRef) (map[string][]string, error) {
	b, err := os.ReadFile(k.Checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("device checkpoint: %w", err)
	}
	return parse(k.Checkpoint, b, pod.UID)
}

func parse(path string, b []byte, uid string) (map[string][]string, error) {
	var c checkpoint
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("device checkpoint %s: %w", path, err)
	}
	devices := map[string][]string{}
	for _, e := range c.Data.PodDeviceEntries {
		if e.PodUID != uid || uid == "" {
			continue
		}
		var flat []string
		var byNode map[string][]string
		if json.Unmarshal(e.DeviceIDs, &flat) != nil {
			if err := json.Unmarshal(e.DeviceIDs, &byNode); err != nil {
				return nil, fmt.Errorf("device checkpoint %s: resource %s: DeviceIDs: %w", path, e.ResourceName, err)
			}
		}
		for _, ids := range byNode {
			flat = append(flat, ids...)
		}
		devices[e.ResourceName] = append(devices[e.ResourceName], flat...)
	}
	return sorted(devices), nil
}
