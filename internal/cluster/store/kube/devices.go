// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// The attributes of a driver's device that networks need.
const (
	deviceIDKey = "k8s.cni.cncf.io/deviceID"
	resourceKey = "k8s.cni.cncf.io/resourceName"
)

// slice is the relevant part of a ResourceSlice.
type slice struct {
	Spec struct {
		Pool struct {
			Name       string
			Generation int64
		}
		Devices []struct {
			Name       string
			Attributes map[string]struct {
				String string `json:"string"`
			}
		}
	}
}

// Devices returns the devices of this node that a driver has published for networks, by one request. They are not
// watched, because they are rarely needed. A server without ResourceSlices has none.
func (s *Store) Devices(ctx context.Context, driver string) ([]model.PublishedDevice, error) {
	kind := store.Kind{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}
	raw, err := do(ctx, lookupLimit, s.clients.lookup.Get().AbsPath(path(kind, "", "")).MaxRetries(0).
		Param("fieldSelector", "spec.nodeName="+s.cfg.Node+",spec.driver="+driver))
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, model.Errorf(
			model.CodeTryAgain, "it is retried; check the API server, and the agent's right to read resourceslices",
			"devices of driver %s: %w", driver, err)
	}
	var list struct{ Items []slice }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("devices of driver %s: %w", driver, err)
	}
	return published(list.Items), nil
}

// published returns the devices with both attributes of each pool's newest generation.
func published(slices []slice) []model.PublishedDevice {
	newest := map[string]int64{}
	for _, s := range slices {
		newest[s.Spec.Pool.Name] = max(newest[s.Spec.Pool.Name], s.Spec.Pool.Generation)
	}
	var all []model.PublishedDevice
	for _, s := range slices {
		pool := s.Spec.Pool
		if pool.Generation < newest[pool.Name] {
			continue
		}
		for _, d := range s.Spec.Devices {
			id, resource := d.Attributes[deviceIDKey].String, d.Attributes[resourceKey].String
			if id != "" && resource != "" {
				all = append(all, model.PublishedDevice{Pool: pool.Name, Name: d.Name, ID: id, Resource: resource})
			}
		}
	}
	return all
}
