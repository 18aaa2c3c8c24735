from httpkit import Server, redirect
from imgscale import thumbnail


def image(request):
    return thumbnail(request.query["name"], width=320)


Server(routes={"/image": image, "/": lambda request: redirect("/shop")}).run()
