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

// The attributes by which a driver says of a device what networks need to know.
const (
	deviceIDKey = "k8s.cni.cncf.io/deviceID"
	resourceKey = "k8s.cni.cncf.io/resourceName"
)

// slice is what matters of a ResourceSlice.
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

// Devices are those of this node that a driver has published for networks, by one request. Nobody else needs to know of
// them, so they are not watched. A server that knows of no such things has none.
func (s *Store) Devices(ctx context.Context, driver string) ([]model.PublishedDevice, error) {
	kind := store.Kind{Group: "resource.k8s.io", Version: "v1", Resource: "resourceslices"}
	raw, err := ask(ctx, lookupLimit, s.clients.lookup.Get().AbsPath(path(kind, "", "")).MaxRetries(0).
		Param("fieldSelector", "spec.nodeName="+s.cfg.Node+",spec.driver="+driver))
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, model.Faultf(
			model.CodeTryAgain, "it is tried again; look at the API server, and at the agent's rights to read resourceslices",
			"devices of driver %s: %w", driver, err)
	}
	var list struct{ Items []slice }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("devices of driver %s: %w", driver, err)
	}
	return published(list.Items), nil
}

// published are the devices of the newest generation of each pool that have something to say.
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
