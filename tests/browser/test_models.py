"""New, Add location, Next, Add in a browser: what is shown of a policy, and what becomes of a choice."""

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.scene import Scene

CODE = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\nprint('<b>text</b>')\n"


def test_from_a_location_to_a_model(page: Page, scene: Scene, complaints: list[str]) -> None:
    page.goto("/models/")
    page.get_by_role("link", name="New model").click()
    page.get_by_role("link", name="Add location").first.click()
    folder = Path(page.locator(".form-hint code").first.inner_text(), "resnet")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(CODE)
    page.get_by_label("Name").fill("resnet")
    page.get_by_role("button", name="Browse for the path").click()
    page.get_by_role("dialog").get_by_role("button", name="resnet").click()
    page.get_by_role("dialog").locator("[data-pick]").click()
    expect(page.get_by_role("textbox", name="Path")).to_have_value(str(folder))
    page.get_by_label("Training script").fill("train.py")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#id_entry_point_error")).to_contain_text("'train.py' is not in the model's folder")
    expect(page.get_by_label("Name")).to_have_value("resnet")
    page.get_by_label("Training script").fill("main.py")
    page.get_by_role("button", name="Add", exact=True).click()

    expect(page.get_by_text("Model template has been added.").first).to_be_visible()
    expect(page.get_by_role("region", name="Text of main.py")).to_contain_text("print('<b>text</b>')")
    page.get_by_role("link", name="Next: add a model").click()
    page.get_by_label("Model name").fill("resnet-step")
    expect(page.get_by_label("Gamma")).to_be_hidden()
    page.get_by_label("Learning rate policy").select_option("step")
    page.get_by_label("Gamma").fill("0.1")
    page.get_by_label("Base learning rate").fill("0.5")
    page.get_by_role("button", name="Add", exact=True).click()

    expect(page.get_by_role("heading", level=1, name="resnet-step")).to_be_visible()
    expect(page.get_by_text("--lr 0.5")).to_be_visible()
    page.get_by_role("tab", name="Validation results").click()
    expect(page.get_by_text("No training of yours with this model has been validated yet")).to_be_visible()
    assert complaints == []
