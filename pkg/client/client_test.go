// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/pkg/client"
)

// Servers listen at free ports.
func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// A program in a pod lists the pools of its cluster.
func Example() {
	config, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		return
	}
	weft, err := client.NewForConfig(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	pools, err := weft.WeftV1alpha1().AddressPools().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range pools.Items {
		fmt.Println(p.Name, p.Spec.Regions)
	}
}

// TestClient: pools are created, followed, changed and deleted, and the server refuses what it must.
func TestClient(t *testing.T) {
	nettest.EndToEnd(t)
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	files, err := filepath.Glob("../../deploy/crds/weft.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no definitions: ", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s.DefineKind(text)
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(s.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	weft, err := client.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pools := weft.WeftV1alpha1().AddressPools()
	follow, err := pools.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Stop()
	pool, err := pools.Create(ctx, &v1alpha1.AddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1alpha1.AddressPoolSpec{Regions: []v1alpha1.AddressRegion{{CIDR: "10.0.0.0/24", BlockSize: 28}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-follow.ResultChan():
		if p, ok := e.Object.(*v1alpha1.AddressPool); !ok || e.Type != watch.Added || p.UID != pool.UID {
			t.Errorf("followed: %v %v", e.Type, e.Object)
		}
	case <-ctx.Done():
		t.Error("no event of a new pool")
	}
	changed := pool.DeepCopy()
	changed.Spec.AssignmentMode = "Automatic"
	_, err = pools.Update(ctx, changed, metav1.UpdateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "cannot be changed") {
		t.Errorf("a pool becomes one of the cluster's network: %v", err)
	}
	pool.Status.ExhaustedOn = []string{"a"}
	if pool, err = pools.UpdateStatus(ctx, pool, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(pool.Status.ExhaustedOn) != 1 || pool.Spec.Regions[0].BlockSize != 28 {
		t.Errorf("with its status: %+v", pool)
	}
	if err := pools.Delete(ctx, "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pools.Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted pool: %v", err)
	}
	kinds := weft.WeftV1alpha1()
	for name, list := range map[string]func() error{
		"blocks": func() error { _, err := kinds.AddressBlocks().List(ctx, metav1.ListOptions{}); return err },
		"claims": func() error { _, err := kinds.AddressClaims("").List(ctx, metav1.ListOptions{}); return err },
		"requests": func() error {
			_, err := kinds.AddressPoolRequests().List(ctx, metav1.ListOptions{})
			return err
		},
		"reservations": func() error {
			_, err := kinds.AddressReservations().List(ctx, metav1.ListOptions{})
			return err
		},
		"moves":     func() error { _, err := kinds.AddressMoves("").List(ctx, metav1.ListOptions{}); return err },
		"endpoints": func() error { _, err := kinds.NodeEndpoints().List(ctx, metav1.ListOptions{}); return err },
		"listeners": func() error { _, err := kinds.FlowListeners().List(ctx, metav1.ListOptions{}); return err },
	} {
		if err := list(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
