package deviantart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// inStash reports whether an item is in Sta.sh, where it is until it is published.
func (x *session) inStash(ctx context.Context, item int64) (bool, error) {
	var got struct {
		Item number `json:"itemid"`
	}
	err := x.get(ctx, fmt.Sprintf("%sstash/item/%d", api, item), &got)
	if p, ok := errors.AsType[*problem](err); ok {
		switch p.result.StatusCode {
		case http.StatusNotFound, http.StatusBadRequest: // Which of them it is, the documentation leaves open.
			return false, nil
		}
	}
	return err == nil, err
}

// list goes through a list of the API, page by page, until see has seen enough. tooLong says that there are more pages than are
// looked at.
func list[T any](ctx context.Context, x *session, path string, page int, see func(T) (enough bool, err error)) (tooLong bool, err error) {
	offset := 0
	for range maxPages {
		var got struct {
			Entries []T  `json:"entries"` // of one list
			Results []T  `json:"results"` // of all others
			More    bool `json:"has_more"`
			Next    int  `json:"next_offset"`
		}
		if err := x.get(ctx, fmt.Sprintf("%s%slimit=%d&offset=%d", api, path, page, offset), &got); err != nil {
			return false, err
		}
		for _, one := range append(got.Entries, got.Results...) {
			if enough, err := see(one); enough || err != nil {
				return false, err
			}
		}
		if !got.More {
			return false, nil
		}
		offset = got.Next
	}
	return true, nil
}

// findUpload looks for the item that an earlier attempt has uploaded and not lived to note; 0 when there is none.
func (x *session) findUpload(ctx context.Context) (item int64, err error) {
	type entry struct {
		Item     number `json:"itemid"`
		Stack    number `json:"stackid"`
		Metadata struct {
			Title string `json:"title"`
		} `json:"metadata"`
	}
	tooLong, err := list(ctx, x, "stash/delta?", deltaPage, func(e entry) (bool, error) {
		if e.Item != 0 || e.Stack == 0 || e.Metadata.Title != stack(x.d) {
			return false, nil
		}
		var contents struct {
			Results []entry `json:"results"`
		}
		err := x.get(ctx, fmt.Sprintf("%sstash/%d/contents", api, e.Stack), &contents)
		for _, r := range contents.Results {
			item = cmp.Or(item, int64(r.Item))
		}
		return item != 0, err
	})
	if tooLong {
		err = fail(publish.Permanent, "there is too much in Sta.sh to look for an earlier upload")
	}
	return item, err
}

// fromGallery is the result for an item that is not in Sta.sh any more: it was published, and the gallery says as what. One that
// is in neither place is not made again.
func (x *session) fromGallery(ctx context.Context, post *Post, p progress) publish.Result {
	type deviation struct {
		ID        string `json:"deviationid"`
		Title     string `json:"title"`
		Published number `json:"published_time"` // seconds since 1970
	}
	// A gallery may show it a little later.
	result := publish.Result{Class: publish.Transient, Error: "the upload is neither in Sta.sh nor in the gallery; it is not made again"}
	_, err := list(ctx, x, "gallery/all?mature_content=true&", galleryPage, func(d deviation) (bool, error) { // The newest first.
		old := time.Unix(int64(d.Published), 0).Before(p.Uploaded.Add(-clockMargin))
		if !old && d.Title == post.Title {
			result = publish.Result{Class: publish.Delivered, StatusCode: http.StatusOK, ExternalID: d.ID}
			return true, nil
		}
		return old, nil
	})
	if err != nil {
		return resultOf(err)
	}
	return result
}
